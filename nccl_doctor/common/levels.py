"""The words by which rules and findings are graded, each list from the gravest to the mildest."""

SEVERITIES = ("error", "warning", "note")
ROLES = ("cause", "symptom", "context")
CONFIDENCES = ("certain", "likely", "possible")
ACTIONS = ("warn", "drain", "job")
