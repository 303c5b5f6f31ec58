"""The best network of a recorded attempt, asked from outside: captions find images, features of images captions."""
