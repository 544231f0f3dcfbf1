"""What was measured on the published MITSIM data, as the numbers that the simulation uses.

Positions and segments are those of traffic that heads for growing positions; the other direction
is the mirror image. Speeds are miles per hour, lengths feet, times seconds.
"""

from __future__ import annotations

from typing import Final

SEGMENTS: Final = 100
FEET: Final = 5_280
"""Length of a segment."""
REPORT_SECONDS: Final = 30
FEET_PER_REPORT: Final = 44
"""How far one mile per hour carries a car between two reports."""
SPEED_MAX: Final = 75

# --- entries ---------------------------------------------------------------------------------

FIRST_VID: Final = 100
ENTRIES_PER_SECOND: Final = (
    (0, 60, 150, 210, 450, 900, 5_000, 10_800),
    (11.7, 11.5, 9.9, 8.5, 8.8, 12.4, 13.2, 13.2),
)
"""Cars that enter one expressway, both directions: (times, rates)."""

RETURNING_SHARE: Final = 0.09
"""Cars that leave early and enter again, perhaps elsewhere, under their old VID."""
RETURNING_DRIVE: Final = (150, 2_400)
"""Seconds such a car may drive at first."""
RETURNING_PAUSE: Final = (61, 1_061)
"""Seconds between its leaving and its return."""
REENTRIES_SHARE: Final = ((300, 4_000), (0.0, 0.09))
"""Share of re-entries among all entries: (times, shares); new cars are the rest."""

ENTRY_WEIGHTS: Final = (785, 724, 673, 630, 450, 367, 209, 154, 50, 11)
"""Entries by block of ten segments."""
ENTRY_OFFSET: Final = (435.0, 75.0, 217, 620)
"""Where in its segment a car enters: mean, deviation, least, most."""
ENTRY_SPEED: Final = (26.5, 3.8, 14, 34)

# --- the drive -------------------------------------------------------------------------------

DENSITY_SPEED: Final = (
    (0, 11, 33, 56, 80, 103, 129, 159, 201, 244, 291, 347, 404, 451, 501, 552, 640, 700),
    (57, 54, 51, 49, 47, 46, 43, 38, 30, 23.5, 18.4, 12.7, 8.4, 6.5, 4.7, 3.0, 0.8, 0.1),
)
"""Mean speed in a segment by the number of cars in it: (cars, speeds)."""
PACE_DEVIATION: Final = 0.13
"""Between drivers, as a share of the mean speed."""
SPEED_DEVIATION: Final = 0.07
"""Between two reports of a driver, likewise."""
CREEP_FEET: Final = (8, 40)
"""A car in a jam still moves this far, so that only accidents stop cars in one place."""

LANE_WEIGHTS: Final = (0.25, 0.47, 0.28)
"""Lanes 1 to 3, after the ramp."""
LANE_CHANGE_SHARE: Final = 0.35
RAMP_DENSITY: Final = 350
"""Cars in a segment above which cars on its entry ramp wait."""
FULL: Final = 700
"""Cars in a segment above which no more enter it from outside."""
RAMP_WAIT_SHARE: Final = 0.75
RAMP_OVERHANG_SHARE: Final = 0.004
"""Cars that report twice from a ramp without need."""

# --- exits -----------------------------------------------------------------------------------

EXIT_CENTRE: Final = (59.0, 16.0)
"""Most cars head for the middle of the road and a little beyond: mean and deviation, segments."""
SHORT_TRIP_SHARE: Final = 0.2
SHORT_TRIP_SEGMENTS: Final = 14.0
"""Mean length of the other trips, which go anywhere."""
EXIT_OFFSET: Final = (4_750.0, 400.0, 3_900, 5_250)
"""Where in its segment a car leaves."""
PATIENCE: Final = (5_400, 8_700)
"""Seconds after which a car takes the next ramp, wherever it is bound for."""
EXIT_LATE_SHARE: Final = 0.006
"""Cars that are seen on the exit ramp only in the next segment."""
VANISHING_SHARE: Final = 0.03
"""Cars that leave without a report from the exit ramp."""

# --- accidents -------------------------------------------------------------------------------

ACCIDENT_FIRST: Final = (30, 90)
ACCIDENT_EVERY: Final = (1_000, 1_400)
"""Seconds from one accident of an expressway to the next."""
ACCIDENT_LASTS: Final = (600, 1_200)
ACCIDENT_SEGMENTS: Final = (8, 90)
ACCIDENT_CROWDING: Final = 2.5
"""Cars before an accident drive as if there were more of them, by this factor."""

# --- requests --------------------------------------------------------------------------------

REQUEST_SHARE: Final = 0.01013
"""Requests per position report."""
REQUEST_WEIGHTS: Final = (0.5, 0.1, 0.4)
"""Types 2, 3 and 4."""
REQUESTS_PER_SECOND_MAX: Final = 32
"""On one road; its mean stays below 10. A request beyond it is not made."""
DAYS: Final = 69
"""Days of history: 1 is yesterday."""
TOLL_MAX: Final = 98
