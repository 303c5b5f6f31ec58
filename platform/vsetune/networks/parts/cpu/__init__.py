"""What is written by hand because it is faster on a CPU, behind one switch (`network_devices.hand_derived`).

| kernel | share of a training step that it saves (batches of 64 and 128, one core; decision 0034) |
| --- | --- |
| `sequences.gru_states`, a GRU step by step | VSE++ 16 to 25 %, SCAN 12 % |
| `sequences.shared_states`, equal beginnings once | captions of Flickr8k: VSE++ 20 to 27 %, SCAN 11 to 13 % |
| `pairs.scores_by_pair`, gradients of few pairs | SGR 26 %; of SCAN's and GSMN's steps more |
| `pairs.scores_of_few`, the same for listed pairs | TAGS without dropout 51 % |

A GPU, and a process with VSETUNE_PLAIN_AUTOGRAD=1, take torch's own layers and automatic differentiation instead; the
results are equal up to rounding. A kernel stays where it saves 5 % of a step.
"""
