# Builds Sallyport in one stage and ships what it needs in another: no compiler, no package manager's cache, no root.
# Run it with a read-only root; what it writes goes to /var/lib/sallyport (keys and records) and /run/sallyport/public
# (the CA that a sandbox may see: mount that folder, and only that one, into the sandbox).
#
#   docker build -t sallyport .
#   docker run --read-only --tmpfs /tmp -v sallyport-state:/var/lib/sallyport -v sallyport-ca:/run/sallyport/public \
#     -v ./config/container.yaml:/etc/sallyport/sallyport.yaml:ro -p 127.0.0.1:8080:8080 sallyport

FROM node:lts-bookworm-slim AS build
# re2 is compiled where no binary fits; the runtime stage has none of these
RUN apt-get update && apt-get install -y --no-install-recommends python3 make g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY tsconfig.json ./
COPY .config .config
COPY src src
RUN npm run build && npm prune --omit=dev

# The init container of the Kubernetes layout same-pod, which puts up the walls around an agent; with root and NET_ADMIN, and nothing
# else of Sallyport in it:  docker build --target redirect -t sallyport-redirect .
FROM debian:bookworm-slim AS redirect
RUN apt-get update && apt-get install -y --no-install-recommends nftables && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["nft"]
CMD ["-f", "/etc/sallyport-redirect/redirect.nft"]

FROM node:lts-bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
  && rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /opt/yarn* \
  && install -d -o node -g node -m 0700 /var/lib/sallyport \
  && install -d -o node -g node -m 0755 /run/sallyport /run/sallyport/public
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY config config
COPY config/container.yaml /etc/sallyport/sallyport.yaml
RUN ln -s /app/dist/sallyport.cjs /usr/local/bin/sallyport && chmod 0755 dist/sallyport.cjs
# `node`, as a number: Kubernetes' runAsNonRoot takes no name. Any other user will do where the two folders below are its own.
USER 1000:1000
VOLUME ["/var/lib/sallyport", "/run/sallyport/public"]
EXPOSE 8080 9090
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9090/readyz').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "--max-semi-space-size=16", "/app/dist/sallyport.cjs"]
CMD ["start", "--config", "/etc/sallyport/sallyport.yaml"]
