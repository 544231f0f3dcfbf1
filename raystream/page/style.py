"""How the page looks: colours for light and dark, one column on a phone."""

from __future__ import annotations

CSS = """
:root { --bg:#f6f7f9; --card:#fff; --ink:#1b2430; --dim:#5d6a7a; --line:#d8dee6; --busy:#2f8f5b;
  --hot:#d97706;  --blocked:#c53a3a; --idle:#cfd6df; --dead:#86198f; --heat:#2563a8;
  --accent:#2563a8 }
.body--dark { --bg:#12161c; --card:#1b212a; --ink:#e6ebf1; --dim:#98a5b5; --line:#323c49;
  --busy:#46b57a;  --hot:#f2a33a; --blocked:#ef6a6a; --idle:#3a4553; --dead:#e879f9;
  --heat:#6ba8ee; --accent:#6ba8ee }
body { background:var(--bg); color:var(--ink); font:14px/1.45 system-ui,"DejaVu Sans",sans-serif }
.nicegui-content { padding:12px; gap:12px; align-items:stretch; max-width:1500px; margin:0 auto }
.rs-card { background:var(--card); border:1px solid var(--line); border-radius:10px;
  padding:12px 14px; width:100%;  min-width:0 }
.rs-card h2 { font-size:13px; line-height:1.2; margin:0 0 8px; color:var(--dim); font-weight:600;
  letter-spacing:.02em }
.rs-two { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));
  gap:12px; width:100% }
.rs-head { display:flex; flex-wrap:wrap; gap:8px; align-items:center; width:100% }
.rs-head h1 { font-size:18px; line-height:1.2; font-weight:700; margin:0 6px 0 0 }
.rs-head .grow { flex:1 }
.rs-facts { display:flex; flex-wrap:wrap; gap:8px 26px }
.rs-fact b { display:block; font-size:18px; line-height:1.2; font-variant-numeric:tabular-nums }
.rs-fact span,.rs-dimtext,.rs-op small { color:var(--dim); font-size:12px; font-weight:400 }
.rs-warn { margin:8px 0 0; padding:6px 10px; border-left:4px solid var(--hot);
  background:color-mix(in srgb, var(--hot) 12%,transparent) }
.rs-end { margin:10px 0 0; padding:8px 10px; border-left:4px solid var(--blocked);
  white-space:pre-wrap;  overflow-wrap:anywhere;
  font:12px/1.5 ui-monospace,"DejaVu Sans Mono",monospace }
.rs-scroll { overflow-x:auto; width:100% }
.rs-graph { width:100%; display:block; font:12px system-ui,"DejaVu Sans",sans-serif }
.rs-edge { fill:none; stroke:var(--line); stroke-width:2 }
.rs-box { fill:var(--card); stroke-width:2; stroke:var(--idle) }
.rs-s-busy { stroke:var(--busy) }
.rs-s-hot { stroke:var(--hot) }
.rs-s-blocked { stroke:var(--blocked) }
.rs-s-dead { stroke:var(--dead); stroke-dasharray:5 3 }
.rs-name { fill:var(--ink); font-weight:700; font-size:13px }
.rs-dim { fill:var(--dim) }
.rs-num { fill:var(--ink) }
.rs-idle { fill:var(--idle) }
.rs-f-busy { fill:var(--busy); background:var(--busy) }
.rs-f-hot { fill:var(--hot); background:var(--hot) }
.rs-f-blocked { fill:var(--blocked); background:var(--blocked) }
.rs-f-idle { fill:var(--idle); background:var(--idle) }
.rs-f-dead { fill:var(--dead); background:var(--dead) }
.rs-f-heat { fill:var(--heat) }
.rs-dot { display:inline-block; width:10px; height:10px; border-radius:5px; margin-right:7px }
.rs-legend { display:flex; flex-wrap:wrap; gap:4px 16px; color:var(--dim); font-size:12px;
  margin-top:8px }
.rs-op { padding:10px 0; border-top:1px solid var(--line) }
.rs-op:first-child { border-top:0; padding-top:0 }
.rs-op h3 { font-size:15px; line-height:1.3; font-weight:700; margin:0 0 4px }
.rs-nums { display:flex; flex-wrap:wrap; gap:2px 18px; font-size:13px; color:var(--dim);
  margin-bottom:6px }
.rs-nums b { color:var(--ink); font-weight:600; font-variant-numeric:tabular-nums }
.rs-bad b,.rs-bad { color:var(--blocked)!important }
.rs-barline { display:grid; grid-template-columns:150px 1fr; align-items:center; gap:10px;
  margin-top:3px }
.rs-barline label { font-size:12px; color:var(--dim) }
.rs-bar { width:100%; height:14px; display:block }
.rs-line { margin-bottom:10px }
.rs-table { border-collapse:collapse; width:100%; font-size:13px;
  font-variant-numeric:tabular-nums }
.rs-table th { text-align:right; color:var(--dim); font-weight:600; padding:3px 8px;
  border-bottom:1px solid var(--line);  white-space:nowrap }
.rs-table td { text-align:right; padding:3px 8px; white-space:nowrap;
  border-bottom:1px solid var(--line) }
.rs-table th:first-child,.rs-table td:first-child { text-align:left }
.rs-story { list-style:none; margin:0; padding:0; max-height:420px; overflow:auto }
.rs-story li { display:grid; grid-template-columns:84px 92px 1fr; gap:8px; padding:6px 0;
  border-top:1px solid var(--line); overflow-wrap:anywhere }
.rs-story time { color:var(--dim); font-size:12px }
.rs-story li div div { color:var(--dim); font-size:12px }
.rs-tag { font-size:12px; font-weight:600; color:var(--hot) }
.rs-t-recovery { color:var(--dead) }
.rs-t-failed { color:var(--blocked) }
.rs-t-scale-out { color:var(--busy) }
.rs-t-scale-in,.rs-t-move { color:var(--accent) }
.rs-k-recovery { fill:var(--dead) }
.rs-k-failed { fill:var(--blocked) }
.rs-k-scale-out { fill:var(--busy) }
.rs-k-scale-in,.rs-k-move { fill:var(--accent) }
.rs-k-note { fill:var(--hot) }
.rs-chart { height:210px; width:100% }
.rs-said { white-space:pre-line }
.q-notification .q-btn .q-btn__content { color:#fff }
.rs-empty { padding:40px 10px; text-align:center; color:var(--dim) }
.body--dark :is(.rs-head,.q-dialog,.q-menu) { --q-primary:#6ba8ee }
.body--dark .q-btn.bg-primary .q-btn__content { color:var(--bg) }
:focus-visible { outline:3px solid var(--accent); outline-offset:2px }
@media(max-width:600px) {
  .nicegui-content { padding:8px }
  .rs-head .grow { flex-basis:100% }
  .rs-barline { grid-template-columns:1fr; gap:1px }
  .rs-story li { grid-template-columns:1fr 1fr }
  .rs-story li>div { grid-column:1/3 }
  .rs-facts { gap:8px 18px }
  .rs-table :is(th,td) { padding:3px 5px }
}
@media(prefers-reduced-motion:reduce) {
  * { animation:none!important; transition:none!important }
}
"""
