"""The files of a new project, for `raystream new`; `$name`, `$module` and the like are filled in.

flow.py.in         a flow with a source, a window and a sink
test_flow.py.in    its tests
pyproject.toml.in  the project and what it needs
Dockerfile.in      an image with the project, from Ray's
rayjob.yaml.in     the job on Kubernetes, for KubeRay
README.md.in       the commands, in the order in which one needs them
"""
