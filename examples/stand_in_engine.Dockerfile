# The image of stand_in_engine.py: Python and, of Gantry's image, the client library.
#   docker build -f examples/stand_in_engine.Dockerfile --build-arg GANTRY_IMAGE=registry.example.com/gantry:0.1.0 .
ARG GANTRY_IMAGE=gantry:0.1.0
ARG BASE_IMAGE=debian:bookworm-slim
FROM ${GANTRY_IMAGE} AS gantry

FROM ${BASE_IMAGE}
RUN apt-get update -q && apt-get install -y -q --no-install-recommends python3 libstdc++6 && rm -rf /var/lib/apt/lists/*
COPY --from=gantry /usr/local/lib/libgantry.so.0 /opt/gantry/
COPY client/python/gantry /opt/gantry/gantry
COPY examples/stand_in_engine.py /opt/gantry/
ENV PYTHONPATH=/opt/gantry PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 GANTRY_LIBRARY=/opt/gantry/libgantry.so.0
USER 1000:1000
ENTRYPOINT ["python3", "/opt/gantry/stand_in_engine.py"]
