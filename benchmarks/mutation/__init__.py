"""Do the tests notice when the code is wrong? One small change at a time, and its tests must fail."""
