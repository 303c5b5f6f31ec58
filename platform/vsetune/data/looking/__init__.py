"""A data set looked at: is it what its manifest says, and what does it show."""
