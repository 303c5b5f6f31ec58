"""Networks: image and caption encoders and their similarity. No retrieval loss, no training. One folder per network:
`spec.py` (hyperparameters, source; no torch), `network.py`, and what only it needs, such as the
names of released weights (`released.py`). `building.build_network` makes one.
"""
