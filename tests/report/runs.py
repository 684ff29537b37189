"""Metrics of runs that never were, as `bcnn train` writes them."""

from bcnn.metrics import RunMetrics

CONTENT = {
    "preset": "improved_bcnn", "dataset": "cub", "listing": "a list", "images": "a digest", "num_classes": 2,
    "broken": {}, "backbone": "alexnet", "image_size": 224, "descriptor_length": 6, "seed": 0, "config": {},
    "versions": {"machine": "m", "threads": "2", "python": "3", "torch": "2", "bcnn": "0"}, "num_train": 8,
    "accuracy": 0.6, "interval95": [0.5, 0.7], "num_test": 100, "top5_accuracy": 1.0, "mean_class_accuracy": 0.6,
    "negative_log_likelihood": 0.5, "calibration_error": 0.1, "per_class": {"x": {"accuracy": 0.6, "num_test": 100}},
    "classifier": {
        "kind": "svm", "C": 1.0, "rescale": "none", "converged": True, "gap": 0.0, "num_iters": 5, "temperature": 0.2,
        "calibrated": True, "cv_accuracy": 0.6, "untrained": [],
    },
    "time_s": {"describe": 1.0, "fit": 2.0},
}  # fmt: skip

EPOCH = {
    "epoch": 0, "train_loss": None, "train_accuracy": None, "val_loss": 1.0, "val_accuracy": 0.4,
    "held_out": "validation", "num_skipped": 0, "time_s": 0.0, "wait_s": 0.0,
}  # fmt: skip

FINETUNE = {
    "epochs": 15, "selected_on": "validation", "best_epoch": 10, "best_val_accuracy": 0.5, "num_skipped": 1,
    "num_gradient_exceptions": 0,
    "nonfinite": [{"epoch": 1, "batch": 2, "what": "loss", "layer": "conv1", "images": ["a.jpg"]}],
    "num_sessions": 1, "num_processes": 1, "memory": "", "train_s": 600.0, "wait_s": 1.0, "history": [EPOCH],
    "before": {"accuracy": 0.5, "interval95": [0.4, 0.6]}, "softmax": {"accuracy": 0.55, "interval95": [0.4, 0.6]},
}  # fmt: skip


def metrics_of(**changes) -> RunMetrics:
    return RunMetrics.from_json({**CONTENT, **changes})
