"""The rules of Linear Road as a batch computation in SQL.

Every view below is one rule, over all the input at once: grouping, window functions and joins,
where the engine works record by record. All arithmetic is on integers, and exact:

* A car's mean speed in a minute is a sum over one or two reports. It is kept as a multiple of
  1/2520 mph (2520 is divisible by 1 to 10), so it is an integer for up to ten reports; more in
  one minute are refused.
* LAV is the floor of the mean of up to five fractions (sum of speeds / cars), added by
  cross-multiplication in DECIMAL(38, 0). The largest product is below 5 * 252,000 * cars^5, so
  it fits for up to 2.4 million cars per segment and minute; beyond, Spark (in ANSI mode, which
  `lrb.oracle.expected` sets) stops with an overflow and never rounds.
* Tolls and balances are BIGINT: an overflow would need 2 billion cars in a segment.

Rows are as prepared: `type` 0 is a position report, 2 asks for a balance, 3 for a day's
expenditure. Type 4 (travel time) is not answered by anybody, and not here. A car reports at most
once a second.
"""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """A named step of the computation. A kept one is computed once and cached."""

    name: str
    sql: str
    keep: bool = False


#: Minutes are counted from 1: minute M holds the seconds 60 (M - 1) to 60 M - 1.
_MINUTE = "CAST(time DIV 60 + 1 AS SMALLINT)"

REQUESTS = View(
    "requests",
    "SELECT type, time, vid, qid, xway, day FROM input WHERE type IN (2, 3)",
    keep=True,
)

# A journey ends with a report in lane 4, or with more than 60 s of silence. What a car does next
# is a new journey: it owes nothing from before, its first report is a notification whatever the
# segment, and its run at a place counts from 1.
#   starts    the first report of a journey
#   notifies  a toll notification is due: the first report in a segment, not in lane 4
#   leaves    a report in lane 4 that shows a segment not notified: the pending toll is charged
#   stopped   the fourth or a later report in a row from the same place (xway, dir, lane, pos);
#             nobody stops in the exit lane
# `segment` and `place` are columns packed into one number: each lag() costs time on all rows.
JOURNEYS = View(
    "journeys",
    f"""
    WITH reports AS (
        SELECT vid, time, {_MINUTE} AS minute, xway, dir, seg, lane,
               (xway * 2 + dir) * 100 + seg AS segment,
               ((CAST(xway AS BIGINT) * 2 + dir) * 5 + lane) * 528000 + pos AS place
        FROM input WHERE type = 0
    ), followed AS (
        SELECT *,
               lag(lane) OVER car AS lane_1, lag(segment) OVER car AS segment_1,
               lag(time) OVER car AS time_1, lag(place) OVER car AS place_1,
               lag(time, 2) OVER car AS time_2, lag(place, 2) OVER car AS place_2,
               lag(time, 3) OVER car AS time_3, lag(place, 3) OVER car AS place_3
        FROM reports
        WINDOW car AS (PARTITION BY vid ORDER BY time)
    ), compared AS (
        SELECT *,
               time_1 IS NULL OR lane_1 = 4 OR time - time_1 > 60 AS starts,
               place = place_1 AND place = place_2 AND place = place_3 AS four_times,
               time - time_1 <= 60 AND time_1 - time_2 <= 60 AND time_2 - time_3 <= 60 AS unbroken
        FROM followed
    )
    SELECT vid, time, minute, xway, dir, seg, place, starts,
           lane <> 4 AND (starts OR segment <> segment_1) AS notifies,
           lane = 4 AND NOT starts AND segment <> segment_1 AS leaves,
           lane <> 4 AND four_times AND unbroken AS stopped
    FROM compared
    """,
)

# About a third of all reports have to do with tolls or accidents.
MARKS = View(
    "marks",
    "SELECT * FROM journeys WHERE notifies OR leaves OR stopped",
    keep=True,
)

# The mean speed of each car in a segment and minute, in 1/2520 mph: all lanes, 0 and 4 included.
CARS = View(
    "cars",
    f"""
    WITH reports AS (
        SELECT xway, dir, seg, {_MINUTE} AS minute, vid, spd FROM input WHERE type = 0
    )
    SELECT xway, dir, seg, minute, vid,
           CASE WHEN count(*) <= 10 THEN sum(spd) * (2520 DIV count(*))
                ELSE raise_error(concat('car ', vid, ' sent ', count(*), ' reports in minute ',
                                        minute, '; the oracle is exact for at most 10'))
           END AS speed
    FROM reports
    GROUP BY xway, dir, seg, minute, vid
    """,
)

CROWDS = View(
    "crowds",
    """
    SELECT xway, dir, seg, minute, count(*) AS cars, sum(speed) AS speeds
    FROM cars
    GROUP BY xway, dir, seg, minute
    """,
)

# What is known when a minute begins: the cars of the minute before, and LAV, the truncated mean of
# the average speeds of those of the five minutes before that had cars. No row: no cars in all five.
SEGMENTS = View(
    "segments",
    """
    SELECT xway, dir, seg, CAST(minute + ahead AS SMALLINT) AS minute,
           sum(IF(ahead = 1, cars, 0)) AS cars,
           aggregate(
               collect_list(struct(CAST(speeds AS DECIMAL(38, 0)) AS speeds,
                                   CAST(cars AS DECIMAL(38, 0)) AS cars)),
               struct(CAST(0 AS DECIMAL(38, 0)) AS over, CAST(1 AS DECIMAL(38, 0)) AS under,
                      0 AS minutes),
               (sum, next) -> struct(
                   CAST(sum.over * next.cars + next.speeds * sum.under AS DECIMAL(38, 0)) AS over,
                   CAST(sum.under * next.cars AS DECIMAL(38, 0)) AS under,
                   sum.minutes + 1 AS minutes),
               sum -> sum.over DIV (sum.under * 2520 * sum.minutes)
           ) AS lav
    FROM crowds LATERAL VIEW explode(sequence(1, 5)) AS ahead
    GROUP BY xway, dir, seg, minute + ahead
    """,
)

# A minute is an accident minute when some stopped report in it finds another car's stopped report
# at the same place at most 30 s before: two cars then stood there together. In a window of stopped
# reports that ends with this one, "another car" is "not all of one car".
ACCIDENTS = View(
    "accidents",
    """
    SELECT DISTINCT xway, dir, seg, minute
    FROM (
        SELECT xway, dir, seg, minute,
               min(vid) OVER together < max(vid) OVER together AS accident
        FROM marks WHERE stopped
        WINDOW together AS (PARTITION BY place ORDER BY time
                            RANGE BETWEEN 30 PRECEDING AND CURRENT ROW)
    )
    WHERE accident
    """,
)

# An accident concerns who enters its segment or one of the four upstream of it in the minute after
# an accident minute. Where several do, the nearest downstream is the one to name.
ZONES = View(
    "zones",
    """
    SELECT xway, dir, entered AS seg, CAST(minute + 1 AS SMALLINT) AS minute,
           IF(dir = 0, min(seg), max(seg)) AS accident
    FROM (SELECT *, CAST(IF(dir = 0, seg - upstream, seg + upstream) AS SMALLINT) AS entered
          FROM accidents LATERAL VIEW explode(sequence(0, 4)) AS upstream)
    GROUP BY xway, dir, entered, minute
    """,
)

# The movements of an account: notifications, each with its toll, and exits into another segment.
# The statistics are a small table, known in whole, so they are sent to where the movements are.
MOVEMENTS = View(
    "movements",
    """
    SELECT /*+ BROADCAST(segments), BROADCAST(zones) */
           vid, time, starts, notifies,
           coalesce(lav, -1) AS lav,
           CASE WHEN NOT notifies OR accident IS NOT NULL THEN 0
                WHEN lav < 40 AND cars > 50 THEN 2 * (cars - 50) * (cars - 50)
                ELSE 0
           END AS toll,
           accident
    FROM marks
    LEFT JOIN segments USING (xway, dir, seg, minute)
    LEFT JOIN zones USING (xway, dir, seg, minute)
    WHERE notifies OR leaves
    """,
    keep=True,
)

TOLLS = View("tolls", "SELECT vid, time, lav, toll FROM movements WHERE notifies")

ALERTS = View(
    "alerts",
    "SELECT time, vid, accident AS seg FROM movements WHERE notifies AND accident IS NOT NULL",
)

# The toll of a movement is charged by the car's next movement in the same journey: by then it has
# left the segment. A journey that ends in the segment, or vanishes, leaves its last toll unpaid.
CHARGES = View(
    "charges",
    """
    SELECT vid, time,
           sum(charge) OVER (PARTITION BY vid ORDER BY time
                             ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS bal
    FROM (SELECT vid, time,
                 IF(starts, 0, lag(toll, 1, 0) OVER (PARTITION BY vid ORDER BY time)) AS charge
          FROM movements
          LEFT SEMI JOIN (SELECT vid FROM requests WHERE type = 2) AS asking USING (vid))
    """,
)

# A balance is that of the latest movement up to the second of the question, and dated by it.
# A car that has not moved yet owes nothing now.
BALANCES = View(
    "balances",
    """
    SELECT time, qid, coalesce(moved, time) AS result_time, coalesce(balance, 0) AS bal
    FROM (SELECT time, qid, asks,
                 last_value(IF(asks, NULL, time), true) OVER until AS moved,
                 last_value(bal, true) OVER until AS balance
          FROM (SELECT vid, time, false AS asks, CAST(NULL AS INT) AS qid, bal FROM charges
                UNION ALL
                SELECT vid, time, true AS asks, qid, CAST(NULL AS BIGINT) AS bal
                FROM requests WHERE type = 2)
          WINDOW until AS (PARTITION BY vid ORDER BY time, asks
                           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
    WHERE asks
    """,
)

# Yesterday is day 1 and the history reaches back to day 69. No history of a day: nothing was spent.
EXPENDITURES = View(
    "expenditures",
    """
    WITH asked AS (
        SELECT time, qid, vid, day, xway FROM requests WHERE type = 3 AND day BETWEEN 1 AND 69
    ), spent AS (
        SELECT /*+ BROADCAST(asked) */ vid, day, xway, sum(toll) AS bal
        FROM history LEFT SEMI JOIN asked USING (vid, day, xway)
        GROUP BY vid, day, xway
    )
    SELECT time, qid, coalesce(bal, 0) AS bal
    FROM asked LEFT JOIN spent USING (vid, day, xway)
    """,
)

RE_ENTRIES = View(
    "re_entries",
    """
    SELECT count(*) AS cars
    FROM (SELECT vid FROM movements WHERE starts GROUP BY vid HAVING count(*) > 1)
    """,
)

#: In an order in which each view finds those it reads.
VIEWS = (
    REQUESTS,
    JOURNEYS,
    MARKS,
    CARS,
    CROWDS,
    SEGMENTS,
    ACCIDENTS,
    ZONES,
    MOVEMENTS,
    TOLLS,
    ALERTS,
    CHARGES,
    BALANCES,
    EXPENDITURES,
    RE_ENTRIES,
)
