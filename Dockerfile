# Gantry's image: the sidecar, the device plugin and gantryctl, and of a distribution only the files that they load.
# docs/image.md says more. "docker build ." where there is Docker; "tools/image" where there is neither Docker nor a registry.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS packages
COPY tools/setup /src/tools/
RUN /src/tools/setup build

FROM packages AS build
# any: drivers' libraries come from the node alone. rocm: AMD's HIP runtime is in the image.
ARG GPU=any
RUN if [ "$GPU" = rocm ]; then apt-get install -y -q --no-install-recommends libamdhip64-5; fi
COPY . /src
WORKDIR /src
# tools/image names a folder of the machine here, so that its compiler cache is used; ccache knows compilers by their time, and
# what was compiled by their messages' language.
ARG CCACHE_DIR=/ccache
ARG LANG=C.UTF-8
# The objects are not kept: as a layer they took gigabytes, twice while it was written.
RUN --mount=type=cache,target=/ccache \
    tools/image-compilers \
    && cmake --preset release \
    && cmake --build --preset release --target gantry-sidecar gantry-device-plugin gantryctl \
    && cmake --install build/release --strip --prefix /install \
    && rm -rf build
RUN tools/image-root --gpu "$GPU" --install /install --root /root-of-image

FROM scratch
COPY --from=build /root-of-image /
# The default of --run-dir, for who runs the image without a volume there.
COPY --from=build --chown=65532:65532 /root-of-image/run/gantry /run/gantry

# Drivers' libraries are mounted by the runtime. Where its hook updates /etc/ld.so.cache (CDI of the NVIDIA toolkit) they
# are found by that; where no hook runs, in the loader's own folders (Debian, Ubuntu) or in these: GKE's, and that of
# distributions with lib64.
ENV PATH=/usr/local/bin LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/lib64
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["gantry-sidecar"]

ARG BASE_IMAGE=debian:bookworm-slim
ARG BASE_DIGEST=""
ARG VERSION=""
ARG REVISION=""
ARG CREATED=""
LABEL org.opencontainers.image.title="Gantry" \
      org.opencontainers.image.description="Moves GPU memory between inference pods: sidecar, device plugin and gantryctl" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="Gantry" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.base.name="$BASE_IMAGE" \
      org.opencontainers.image.base.digest="$BASE_DIGEST"
