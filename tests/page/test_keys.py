"""The keys of the page in a real browser, over a made-up job."""

from __future__ import annotations

from tests.gates import LIMIT_SECONDS
from tests.page.browsers import chromium
from tests.page.pictures import served

TITLES = {"s": "Scale words", "m": "Move an instance", "x": "Stop words", "k": "A row of words"}


def test_each_key_opens_one_question_wherever_the_focus_is() -> None:
    with chromium() as browser, served() as (url, _):
        page = browser.new_page()
        page.set_default_timeout(1000 * LIMIT_SECONDS)
        page.goto(url)
        page.locator(".rs-graph").wait_for()
        question = page.locator(".q-dialog")
        for key, title in TITLES.items():
            page.get_by_role("button", name="Dark / light").focus()
            page.keyboard.press(key)
            question.get_by_text(title).wait_for()
            question.get_by_role("button").first.focus()
            page.keyboard.press("d")  # no second question while the first one is open
            page.keyboard.press("Escape")
            assert question.count() == 1
            question.wait_for(state="detached")


def test_a_question_has_room_for_an_answer_and_leaves_last_what_changes_nothing() -> None:
    with chromium() as browser, served() as (url, _):
        page = browser.new_page(viewport={"width": 390, "height": 900})
        page.set_default_timeout(1000 * LIMIT_SECONDS)
        page.goto(url)
        page.locator(".rs-graph").wait_for()
        question = page.locator(".q-dialog")
        page.keyboard.press("k")
        field, whole = (question.locator(each) for each in (".q-input", ".q-select"))
        assert field.evaluate("e => e.offsetWidth") == whole.evaluate("e => e.offsetWidth")
        page.keyboard.press("Escape")
        question.wait_for(state="detached")
        page.keyboard.press("x")
        question.get_by_text(TITLES["x"]).wait_for()
        answers = question.get_by_role("button").all_inner_texts()
        assert answers == ["Save and stop", "Stop at once", "Cancel"]
