# Gantry's image: the sidecar, the device plugin and gantryctl, and of a distribution only the files that they load.
# docs/image.md says more. "docker build ." where there is Docker; "tools/image" where there is neither Docker nor a registry.
ARG BASE_IMAGE=debian:bookworm-slim

# Built on the machine's own architecture, also for another one (docker build --platform linux/arm64): nothing is emulated.
FROM --platform=$BUILDPLATFORM ${BASE_IMAGE} AS packages
COPY tools/debian-archives tools/setup tools/sysroot /src/tools/
RUN /src/tools/setup build
ARG BUILDARCH
ARG TARGETARCH
RUN if [ "$TARGETARCH" != "$BUILDARCH" ]; then /src/tools/setup "$TARGETARCH" && /src/tools/sysroot "$TARGETARCH"; fi

FROM packages AS build
COPY . /src
WORKDIR /src
# tools/image names a folder of the machine here, so that its compiler cache is used; ccache knows compilers by their time, and
# what was compiled by their messages' language.
ARG CCACHE_DIR=/ccache
ARG LANG=C.UTF-8
ARG BUILDARCH
ARG TARGETARCH
# The objects are not kept: as a layer they took gigabytes, twice while it was written.
RUN --mount=type=cache,target=/ccache \
    tools/image-compilers && preset=release; [ "$TARGETARCH" = "$BUILDARCH" ] || preset=$TARGETARCH; \
    cmake --preset "$preset" \
    && cmake --build --preset "$preset" --target installed \
    && cmake --install "build/$preset" --strip --prefix /install \
    && rm -rf build
# any: drivers' libraries come from the node alone. rocm: AMD's HIP runtime and its compiler are in the image,
# the base's where it has AMD's packages, else the distribution's.
ARG GPU=any
RUN if [ "$GPU" = rocm ] && [ ! -e /opt/rocm/lib ]; then apt-get install -y -q --no-install-recommends libamdhip64-5; fi
RUN if [ "$TARGETARCH" != "$BUILDARCH" ]; then sysroot=$(tools/sysroot "$TARGETARCH"); fi; \
    tools/image-root --gpu "$GPU" --install /install --root /root-of-image --sysroot "${sysroot:-/}"

FROM scratch
COPY --from=build /root-of-image /
# The default of --run-dir, for who runs the image without a volume there.
COPY --from=build --chown=65532:65532 /root-of-image/run/gantry /run/gantry

# Drivers' libraries are mounted by the runtime. Where its hook updates /etc/ld.so.cache (CDI of the NVIDIA toolkit) they
# are found by that; where no hook runs, in the loader's own folders (Debian, Ubuntu) or in these: GKE's, and that of
# distributions with lib64. The last is where AMD's packages have their libraries.
ENV PATH=/usr/local/bin LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/lib64:/opt/rocm/lib
# AMD's compiler writes files before it answers, and in a pod nothing else can be written to.
ENV TMPDIR=/run/gantry
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
