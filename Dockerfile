# Ballast in a container: docker build -t ballast . (docs/server.md). Not built in CI: there is no Docker there.
FROM debian:12 AS build
WORKDIR /src
# The packages alone first, so that a change of the source does not install them again.
COPY tools/setup.sh tools/
RUN sh tools/setup.sh build
COPY . .
# Takes models/ from here when the default model is there, else fetches it.
RUN make build && make install DESTDIR=/out PREFIX=/usr

FROM debian:12-slim
# What `ldd build/release/ballast` names.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libedit2 libfmt9 libhwy1 libpcre2-8-0 libprometheus-cpp-core1.0 \
       libspdlog1.10 libstdc++6 libutf8proc2 libxxhash0 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --home-dir /var/lib/ballast --no-create-home --shell /usr/sbin/nologin ballast \
    && install -d -o ballast -g ballast -m 700 /var/lib/ballast
COPY --from=build /out/usr /usr
COPY packaging/healthcheck.sh /usr/libexec/ballast-healthcheck
# Only here, where the container's own network is the fence; a program on a machine listens on 127.0.0.1.
ENV BALLAST_HOST=0.0.0.0 BALLAST_SESSIONS_DIR=/var/lib/ballast
USER 10001
VOLUME /var/lib/ballast
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=6s --start-period=2m CMD ["/usr/libexec/ballast-healthcheck"]
ENTRYPOINT ["ballast"]
CMD ["serve"]
