"""Every line of `docs/when_things_go_wrong.md` on damage has a test that makes the damage, or a reason why none can."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "when_things_go_wrong.md"
DAMAGE = {
    "Ctrl-C, SIGTERM": "test_ctrl_c_exits_130_and_the_same_command_goes_on",
    "`kill -9`, power cut": "test_a_killed_study_resumes_to_exactly_the_promised_trials",
    "the process of a trial died": "test_a_worker_killed_in_the_middle_costs_an_attempt_and_no_trial",
    "a cluster's last node":
        "test_trials_that_lost_their_node_for_good_are_told_once_and_once_more_when_one_comes",
    "a node's GPU is not to be found": "test_a_gpu_that_is_not_there_interrupts_the_trial_and_replaces_the_worker",
    "a trial hangs": "test_a_silent_trial_is_ended_once_and_the_reason_names_the_setting",
    "a loss or network of your own opens a file": "test_an_outage_is_never_laid_to_the_code",
    "the GPU reports an error": "needs a GPU",
    "Ray's raylet or GCS died": "test_a_child_of_the_raylet_is_ended_though_the_raylet_has_gone",
    "Ray did not start on a busy machine": "test_a_ray_that_does_not_start_is_one_line_and_leaves_no_process",
    "the S3 server does not answer": "test_storage_that_refuses_leaves_a_trial_open_and_resuming_finishes_it",
    "the S3 server does not answer at the start": "test_a_store_that_is_away_is_one_line",
    "with a home on object storage: the S3 server goes away":
        "test_a_server_that_is_away_for_a_while_gets_everything_afterwards_and_files_are_forgotten_only_then",
    "... the machine of the driver is gone": "test_a_study_killed_on_one_machine_ends_on_another_as_if_undisturbed",
    "... the study is resumed elsewhere": "test_a_second_holder_is_refused",
    "... an object there is damaged": "test_a_checkpoint_damaged_on_the_server_is_told_and_the_trial_begins_anew",
    "a node cannot keep a split as arrays": "test_a_full_disk_leaves_the_shards_one_line_and_no_file",
    "a node cannot keep shards":
        "test_a_worker_whose_cache_takes_nothing_trains_all_the_same_and_its_driver_hears_why",
    "MLflow is down": "test_a_store_that_is_still_away_leaves_everything_where_it_is",
    "... and is still away at the end": "test_a_study_whose_records_still_wait_at_its_end_leaves_with_4",
    "MLflow refuses an event": "test_an_event_that_mlflow_refuses_is_told_and_tried_again",
    "MLflow does not let the study in":
        "test_a_tracking_store_that_cannot_be_used_leaves_no_study_behind_so_that_the_corrected_file_is_a_new_one",
    "the disk under `VSETUNE_HOME` is full": "test_a_full_disk_is_one_line_and_keeps_the_old_checkpoint",
    "... and refuses the log": "test_a_disk_that_refuses_the_log_for_long_ends_its_driver",
    "the home cannot be written": "test_a_home_that_cannot_be_written_is_named_by_every_command_that_needs_it",
    "the log of a study, or its whole folder": "test_a_damaged_log_is_mended_from_mlflow_and_keeps_what_came_later",
    "a line of the log is damaged": "test_a_damaged_line_is_left_out_by_readers_and_refused_by_the_writer",
    "another process runs the same study": "test_a_driver_that_is_paused_inside_ask_holds_its_folder",
    "a loss became not-a-number": "test_a_loss_that_is_not_finite_names_step_rate_and_remedy",
    "a cell finds no valid configuration": "test_resuming_keeps_what_became_of_the_cell_and_draws_no_more",
    "a checkpoint is damaged": "test_a_damaged_checkpoint_is_set_aside_and_the_trial_starts_again",
    "a checkpoint of another trial": "test_a_checkpoint_of_another_trial_is_not_damaged",
    "weights of a recorded trial are cut short":
        "test_weights_that_are_cut_short_are_named_and_found_by_the_doctor",
    "a plugin changed": "test_a_study_whose_plugin_changed_goes_on_once_the_old_code_is_back",
    "the study file changed": "test_a_study_name_in_use_is_refused_with_what_changed",
}


def rows() -> list[str]:
    """The first cell of every row of the table of damage."""
    table = PAGE.read_text().partition("| what happened |")[2].partition("\n\n")[0]
    return [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]


def test_every_line_has_its_damage() -> None:
    known = re.findall(r"^def (test_\w+)", "\n".join(file.read_text() for file in TESTS.rglob("test_*.py")), re.M)
    for row in rows():
        key = max((key for key in DAMAGE if row.startswith(key)), key=len, default=None)
        assert key is not None, f"no test makes this damage: {row}"
        assert DAMAGE[key] in known or " " in DAMAGE[key], f"{row}: {DAMAGE[key]}"
