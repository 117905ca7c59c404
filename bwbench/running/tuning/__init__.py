"""As many trainings for every arm to find its learning rate, and the table that they fill."""
