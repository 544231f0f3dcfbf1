"""`python -m raystream.simulation`."""

import sys

from raystream.simulation.simulator import main

sys.exit(main())
