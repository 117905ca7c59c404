"""A sweep on more machines than this one: through Ray, or as an array job of Slurm. Ray is imported when it is used."""
