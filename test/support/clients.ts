// Real clients, each by the tool's name in the README's table, with the lines that send it for something. What they print is judged by
// whoever runs them.
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Runnable } from './run-client.ts';

const python = (title: string, modules: string, lines: string): Runnable => ({
  title,
  commands: ['python3'],
  probe: ['python3', '-c', `import ${modules}`],
  call: ({ base }) => ({ script: `python3 fetch.py ${base}/hello`, files: { 'fetch.py': lines } }),
});

const JAVA = `
import java.net.*;
import java.net.http.*;

public class Fetch {
  public static void main(String[] words) throws Exception {
    String given = System.getenv("PROXY");
    String[] userinfo = URI.create(given).getRawUserInfo().split(":");
    Authenticator.setDefault(new Authenticator() {
      protected PasswordAuthentication getPasswordAuthentication() {
        return new PasswordAuthentication(userinfo[0], URLDecoder.decode(userinfo[1], java.nio.charset.StandardCharsets.UTF_8).toCharArray());
      }
    });
    var connection = (HttpURLConnection) URI.create(words[0]).toURL().openConnection();
    System.out.println(new String(connection.getInputStream().readAllBytes()));
    var client = HttpClient.newBuilder().authenticator(Authenticator.getDefault()).build();
    var request = HttpRequest.newBuilder(URI.create(words[0])).build();
    var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
    if (answer.statusCode() != 200) throw new Exception("status " + answer.statusCode());
  }
}
`;

const NODE_FETCH =
  'fetch(process.argv[1]).then(async (answer) => console.log(await answer.text()), (error) => { console.error(error, error.cause); process.exit(1); })';

/** Every way that is tested, by the tool's name in the table. */
export const RUNNABLES = {
  curl: [{ title: 'curl', commands: ['curl'], call: ({ base }) => ({ script: `curl -fsS ${base}/hello` }) }],
  wget: [{ title: 'wget', commands: ['wget'], call: ({ base }) => ({ script: `wget -O- ${base}/hello` }) }],
  git: [
    {
      title: 'git clone',
      commands: ['git'],
      call: ({ base }) => ({ script: `git clone -q ${base}/git/tiny.git there && cat there/hello.txt` }),
    },
  ],
  OpenSSL: [
    {
      title: 'openssl s_client',
      commands: ['openssl'],
      call: ({ base, variables }) => {
        const { hostname, host } = new URL(base);
        const proxy = new URL(variables['HTTPS_PROXY'] ?? '');
        return {
          script: `openssl s_client -quiet -verify_return_error -servername ${hostname} -connect ${host} -proxy ${proxy.host} -proxy_user ${proxy.username} -proxy_pass env:PASSWORD`,
          env: { PASSWORD: decodeURIComponent(proxy.password) },
          input: `GET /hello HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
        };
      },
    },
  ],
  'Node fetch': [
    {
      title: "Node's fetch",
      commands: ['node'],
      // From 22.21 and 24 on; NODE_USE_ENV_PROXY does nothing before.
      probe: [
        'node',
        '-e',
        "const [a, b] = process.versions.node.split('.').map(Number); process.exit(a > 22 || (a === 22 && b > 20) ? 0 : 1)",
      ],
      call: ({ base }) => ({ script: 'node -e "$SCRIPT" "$URL"', env: { SCRIPT: NODE_FETCH, URL: `${base}/hello` } }),
    },
  ],
  undici: [
    {
      title: "undici's EnvHttpProxyAgent",
      commands: ['node'],
      call: ({ base }) => ({
        script: `node fetch.mjs ${base}/hello`,
        files: {
          'fetch.mjs': `import { EnvHttpProxyAgent, request } from ${JSON.stringify(import.meta.resolve('undici'))};
const { body } = await request(process.argv[2], { dispatcher: new EnvHttpProxyAgent() });
console.log(await body.text());`,
        },
      }),
    },
  ],
  npm: [
    {
      title: 'npm install',
      commands: ['npm'],
      call: ({ base }) => ({
        script: `npm install --silent --no-audit --no-fund --fetch-retries=0 --loglevel=error --registry ${base}/npm/ tiny && cat node_modules/tiny/hello.txt`,
        files: { 'package.json': '{ "private": true }' },
      }),
    },
  ],
  pnpm: [
    {
      title: 'pnpm add',
      commands: ['pnpm'],
      call: ({ base }) => ({
        script: `pnpm add --config.fetch-retries=0 --registry ${base}/npm/ tiny && cat node_modules/tiny/hello.txt`,
        files: { 'package.json': '{ "private": true }' },
      }),
      hears: /tunnel error: unsuccessful/,
    },
  ],
  yarn: [
    {
      title: 'yarn add',
      commands: ['yarn'],
      call: ({ base }) => ({
        script: 'yarn add tiny && cat node_modules/tiny/hello.txt',
        env: { npm_config_registry: `${base}/npm/`, YARN_NPM_REGISTRY_SERVER: `${base}/npm`, YARN_NODE_LINKER: 'node-modules' },
        files: { 'package.json': '{ "private": true }', 'yarn.lock': '' },
      }),
    },
  ],
  'Python urllib': [
    python(
      'urllib',
      'urllib.request',
      'import sys, urllib.request\nprint(urllib.request.urlopen(sys.argv[1]).read().decode())\n',
    ),
  ],
  requests: [
    python(
      'requests',
      'requests',
      'import sys, requests\nanswer = requests.get(sys.argv[1])\nanswer.raise_for_status()\nprint(answer.text)\n',
    ),
  ],
  httpx: [
    python(
      'httpx',
      'httpx',
      'import sys, httpx\nanswer = httpx.get(sys.argv[1])\nanswer.raise_for_status()\nprint(answer.text)\n',
    ),
  ],
  pip: [
    {
      title: 'pip install',
      commands: ['python3'],
      probe: ['python3', '-m', 'pip', '--version'],
      call: ({ base }) => ({
        script: `python3 -m pip install -vv --disable-pip-version-check --no-cache-dir --retries 0 --target there --index-url ${base}/simple/ tiny && cat there/tiny.py`,
        env: { PIP_CONFIG_FILE: '/dev/null' },
      }),
    },
  ],
  uv: [
    {
      title: 'uv pip install',
      commands: ['uv'],
      call: ({ base }) => ({
        script: `uv pip install --no-config --no-cache --target there --index-url ${base}/simple/ tiny && cat there/tiny.py`,
      }),
    },
  ],
  Go: [
    {
      title: 'the go command',
      commands: ['go'],
      call: ({ base }) => ({
        script: 'go list -m -versions outside.test/tiny',
        env: { GOPROXY: `${base}/go`, GOFLAGS: '-mod=mod', GOTOOLCHAIN: 'local', GOSUMDB: 'off' },
      }),
      prints: 'outside.test/tiny v1.0.0 v1.1.0',
    },
  ],
  cargo: [
    {
      title: 'cargo fetch',
      commands: ['cargo'],
      call: ({ base, folder }) => ({
        script: 'cargo fetch && cat cargo/registry/src/*/tiny-1.0.0/src/lib.rs',
        env: {
          CARGO_HOME: join(folder, 'cargo'),
          RUSTUP_HOME: process.env['RUSTUP_HOME'] ?? join(homedir(), '.rustup'),
          CARGO_NET_RETRY: '0',
          CARGO_REGISTRIES_OUTSIDE_INDEX: `sparse+${base}/crates/`,
        },
        files: {
          'Cargo.toml':
            '[package]\nname = "own"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\ntiny = { version = "1", registry = "outside" }\n',
          'src/lib.rs': '',
        },
      }),
    },
  ],
  Java: [
    {
      title: "Java's HttpURLConnection and HttpClient",
      commands: ['java', 'javac'],
      call: ({ base, variables }) => ({
        script: `java Fetch.java ${base}/hello`,
        env: { PROXY: variables['HTTPS_PROXY'] ?? '' },
        files: { 'Fetch.java': JAVA },
      }),
    },
  ],
  Ruby: [
    {
      title: "Ruby's Net::HTTP",
      commands: ['ruby'],
      call: ({ base }) => ({ script: `ruby -rnet/http -e 'puts Net::HTTP.get(URI(ARGV[0]))' ${base}/hello` }),
    },
  ],
  Deno: [
    {
      title: "Deno's fetch",
      commands: ['deno'],
      call: ({ base }) => ({
        script: `deno run --allow-all --no-lock fetch.ts ${base}/hello`,
        files: { 'fetch.ts': 'console.log(await (await fetch(Deno.args[0])).text());' },
      }),
      hears: /unsuccessful tunnel/,
    },
  ],
  'AWS CLI': [
    {
      title: 'aws s3api list-buckets',
      commands: ['aws'],
      call: ({ base }) => ({
        script: `aws s3api list-buckets --no-sign-request --endpoint-url ${base}/s3 --output json`,
        env: { AWS_DEFAULT_REGION: 'us-east-1', AWS_MAX_ATTEMPTS: '1', AWS_EC2_METADATA_DISABLED: 'true' },
      }),
      hears: /Failed to connect to proxy URL/,
    },
  ],
  gcloud: [
    {
      title: 'gcloud storage buckets list',
      commands: ['gcloud'],
      call: ({ base }) => ({
        script: "gcloud storage buckets list --format='value(name)' --quiet",
        env: {
          CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE: `${base}/storage/v1/`,
          CLOUDSDK_AUTH_DISABLE_CREDENTIALS: 'true',
          CLOUDSDK_CORE_PROJECT: 'outside',
          CLOUDSDK_CORE_DISABLE_USAGE_REPORTING: 'true',
        },
      }),
      hears: 'in half a minute',
    },
  ],
  gRPC: [
    {
      title: "Node's gRPC",
      commands: ['node'],
      call: ({ grpc }) => ({
        script: `node call.mjs ${grpc}`,
        files: {
          'call.mjs': `import grpc from ${JSON.stringify(import.meta.resolve('@grpc/grpc-js'))};
const client = new grpc.Client(process.argv[2], grpc.credentials.createSsl());
const same = (bytes) => bytes;
client.makeUnaryRequest('/outside.Greeter/Greet', same, same, Buffer.from('greet'), (error, answer) => {
  console.log(error === null ? answer.toString() : error.message);
  process.exit(error === null ? 0 : 1);
});`,
        },
      }),
    },
  ],
  Chromium: [
    {
      title: 'Chromium',
      commands: ['chromium', 'certutil'],
      // What `sallyport ca` says, in a home that has no database yet.
      call: ({ base, variables }) => ({
        script: `mkdir -p .pki/nssdb && certutil -d sql:$HOME/.pki/nssdb -N --empty-password &&
certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n sallyport -i "$CA" &&
chromium --headless --no-sandbox --disable-gpu --disable-background-networking --user-data-dir=$HOME/profile --dump-dom ${base}/hello`,
        env: { CA: variables['NODE_EXTRA_CA_CERTS'] ?? '' },
      }),
      hears: /ERR_TUNNEL_CONNECTION_FAILED/,
      bearsNoToken: true,
    },
  ],
} satisfies Readonly<Record<string, readonly Runnable[]>>;
