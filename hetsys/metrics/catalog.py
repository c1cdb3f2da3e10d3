"""What the names in `summary.json` mean to a reader: a short title, which direction is good, how two systems are compared."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Metric:
    """`better`: "higher", "lower" or "" (neither). `scale`: "ratio" (log-ratios, geometric mean) or "difference" (numbers that
    can be 0 or signed). `decimals` for printing; `hours`: stored in seconds, printed in hours (by `in_seconds` as they are)."""

    name: str
    title: str
    better: str = ""
    scale: str = "ratio"
    decimals: int = 2
    hours: bool = False

    def text(self, value: float | None) -> str:
        """The value as tables print it."""
        if value is None:
            return "n/a"
        return f"{value / 3600.0 if self.hours else value:,.{self.decimals}f}"

    def in_seconds(self) -> Metric:
        """The same metric for numbers that are too small to be read in hours."""
        return replace(self, title=self.title.replace("(h)", "(s)"), decimals=1, hours=False) if self.hours else self


_KNOWN = (
    Metric("throughput_normalized", "throughput (slow devices)", "higher"),
    Metric("throughput_normalized_all", "throughput, whole run", "higher"),
    Metric("throughput_watched", "throughput, watched tenants", decimals=3),
    Metric("load_factor", "load factor"),
    Metric("jct_mean_s", "mean JCT (h)", "lower", decimals=2, hours=True),
    Metric("jct_p50_s", "median JCT (h)", "lower", decimals=2, hours=True),
    Metric("jct_p95_s", "p95 JCT (h)", "lower", decimals=1, hours=True),
    Metric("makespan_s", "makespan (h)", "lower", decimals=1, hours=True),
    Metric("device_s", "device time (h)", "", decimals=1, hours=True),
    Metric("finish_time_fairness_p95", "finish-time fairness p95", "lower"),
    Metric("finish_time_fairness_max", "finish-time fairness max", "lower"),
    Metric("finish_time_unfair_fraction", "unfair jobs", "lower", "difference", 3),
    Metric("jain_index", "Jain index", "higher", decimals=3),
    Metric("envy_max", "envy max", "lower", "difference"),
    Metric("envy_mean", "envy mean", "lower", "difference", 3),
    Metric("sharing_incentive_min", "sharing incentive min", "higher", "difference"),
    Metric("user_envy_max", "envy max, of users", "lower", "difference"),
    Metric("user_sharing_incentive_min", "sharing incentive min, of users", "higher", "difference"),
    Metric("noncontiguous_users_fraction", "users with a gap in kinds", "lower", "difference", 3),
    Metric("cross_host_gangs_fraction", "gangs across hosts", "lower", "difference", 3),
    Metric("cross_kind_gangs_fraction", "gangs across kinds", "", "difference", 3),
    Metric("straggler_loss", "speed lost to stragglers", "lower", "difference", 3),
    Metric("entitlement_received_min", "entitlement received, least", "higher", "difference", 3),
    Metric("wait_max_turns", "longest wait (turns)", "lower", decimals=1),
    Metric("idle_device_fraction", "idle devices", "lower", "difference", 3),
    Metric("stranded_device_fraction", "stranded devices", "lower", "difference", 3),
    Metric("device_hours", "device hours", "lower", decimals=0),
    Metric("cost_usd", "cost (USD)", "lower", decimals=0),
    Metric("rounds", "rounds", "", decimals=0),
    Metric("restarts", "restarts", "lower", decimals=0),
    Metric("restarts_per_round", "restarts a round", "lower"),
    Metric("preemptions", "preemptions", "lower", decimals=0),
    Metric("lost_steps_fraction", "lost steps", "lower", "difference", 4),
    Metric("jobs_finished", "jobs finished", "higher", "difference", 1),
    Metric("jobs_unfinished", "jobs unfinished", "lower", "difference", 1),
    Metric("jobs_withdrawn", "jobs withdrawn", "lower", "difference", 1),
    Metric("tenants_parked", "tenants parked", "", "difference", 1),
    Metric("jobs_parked", "jobs parked", "", "difference", 1),
    Metric("crashes", "crashes", "lower", "difference", 1),
    Metric("solver_kept", "solver: kept", "lower", "difference", 1),
    Metric("solver_fallbacks", "solver: fallbacks", "lower", "difference", 1),
    Metric("solve_s_p50", "solve p50 (s)", "lower", decimals=4),
    Metric("solve_s_max", "solve max (s)", "lower", decimals=3),
    Metric("plan_s", "planning (s)", "lower", decimals=2),
    Metric("solves", "times planned anew", "", decimals=0),
    Metric("wall_s", "wall (s)", "", decimals=2),
    Metric("loss_final_mean", "final loss, mean of jobs", "", decimals=4),
    Metric("executed_steps", "steps really made", "", decimals=0),
    Metric("checkpoints", "checkpoints written", "", decimals=0),
    Metric("reduced_bytes", "gradient bytes reduced", "", decimals=0),
    Metric("ledger_mismatches", "ledger mismatches", "lower", "difference", 0),
    Metric("predicted_throughput_normalized", "throughput, predicted", ""),
    Metric("predicted_jct_mean_s", "mean JCT, predicted (h)", "", hours=True),
    Metric("prediction_error_fraction", "prediction error", "lower", "difference", 3),
    Metric("throughput_prediction_error_fraction", "throughput prediction error", "lower", "difference", 3),
    Metric("jct_prediction_error_fraction", "JCT prediction error", "lower", "difference", 3),
)
METRICS = {metric.name: metric for metric in _KNOWN}

HEADLINE = (
    "throughput_normalized",
    "jct_mean_s",
    "finish_time_fairness_p95",
    "jain_index",
    "envy_max",
    "sharing_incentive_min",
    "idle_device_fraction",
    "restarts_per_round",
)
"""The columns of the table that ends a run of the scheduling domain."""


def metric(name: str) -> Metric:
    """The entry of `name`; a name that nobody described is printed as it is, compared by difference, and neither direction is
    good."""
    return METRICS.get(name) or Metric(name, name, scale="difference", decimals=4)
