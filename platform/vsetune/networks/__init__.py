"""Networks: image and caption encoders and their similarity. No retrieval loss, no training. One folder per network:
`spec.py` (hyperparameters, source; no torch), `network.py`, and further modules of this network, such as the names of
released weights (`released.py`). `network_building.build_network` makes one.
"""
