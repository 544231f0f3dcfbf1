"""The only place that touches Ray, Flight, threads and clocks: shells round the pure machines."""
