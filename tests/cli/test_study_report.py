"""What a person reads when a study has run says where in MLflow its runs are."""

from __future__ import annotations

from vsetune.cli.study_report import in_mlflow

RUNS = "#/experiments/7/runs?workflowType=machine_learning"


def test_a_database_needs_a_server_and_the_runs_are_at_its_address() -> None:
    command = (
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false "
        "mlflow server --backend-store-uri sqlite:////h/mlflow.db --workers 1 --port 5000"
    )
    assert in_mlflow("sqlite:////h/mlflow.db", "7") == [
        f"MLflow UI: {command}", f"runs:      http://127.0.0.1:5000/{RUNS}",
    ]
    assert in_mlflow("sqlite:////h/mlflow.db", None) == [f"MLflow UI: {command}"]


def test_a_server_that_answers_is_named_without_its_password() -> None:
    assert in_mlflow("http://ann:secret@mlflow:5000", "7") == [f"runs:      http://mlflow:5000/{RUNS}"]
