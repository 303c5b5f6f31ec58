"""The Python interface: `vsetune.Study`, `vsetune.train` and the other names of `vsetune.__all__`. Beside `cli`, which
calls the same functions below."""
