"""What is written by hand because it is faster on a CPU, behind one switch (`network_devices.hand_derived`).

| kernel | share of a training step that it saves (batches of 64 to 128, one core; decisions 0034 and 0050) |
| --- | --- |
| `sequences.gru_states`, a GRU step by step | VSE++ 16 %, SCAN 12 % |
| `sequences.shared_states`, equal beginnings once | VSE++ up to 29 %, SCAN 18 %, SAF 6 %, SGR 5 % |
| `sequences.largest_first`, ranks by numpy | VSE-infinity 5 to 7 % |
| `pairs.scores_by_pair`, gradients of few pairs | SGR 26 %; SCAN and GSMN about 40 % |
| `pairs.scores_of_few`, the same for listed pairs | TAGS without dropout 51 % |

A GPU, and a process with VSETUNE_PLAIN_AUTOGRAD=1, take torch's own layers and automatic differentiation instead; the
results are equal up to rounding. A kernel stays where it saves 5 % of a step.
"""
