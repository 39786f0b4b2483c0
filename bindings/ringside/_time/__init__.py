"""When each rank works and waits: counts of a plan and a model of a machine make a timeline.

model is a machine as data, model_json its file, loads the microseconds of each exchange and step,
walk who waits for whom, timeline what comes of it, trace its file for Perfetto.
"""
