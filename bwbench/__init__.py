"""bwbench: on my link, which way of data-parallel training reaches my target accuracy first?"""

__version__ = "0.1.0"
