import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Cluster, ScheduledBackup } from '@kubernetes-models/cloudnative-pg/postgresql.cnpg.io/v1';
import { Deployment, type IDeployment } from 'kubernetes-models/apps/v1';
import { HorizontalPodAutoscaler, type IHorizontalPodAutoscaler } from 'kubernetes-models/autoscaling/v2';
import { PodDisruptionBudget, type IPodDisruptionBudget } from 'kubernetes-models/policy/v1';
import { Service, type IContainer, type IService } from 'kubernetes-models/v1';
import { main } from 'treadle';
import { describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { testDatabase } from '../store/shared-postgres.ts';
import { deployFile, env, graceSeconds, prepareMachine, root } from './serving.ts';

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string };
}

/** The checks of the project that defines each kind. Those of the types find fields that do not exist. */
const MODELS = {
  Deployment: { model: Deployment, types: 'kubernetes-models/apps/v1' },
  Service: { model: Service, types: 'kubernetes-models/v1' },
  PodDisruptionBudget: { model: PodDisruptionBudget, types: 'kubernetes-models/policy/v1' },
  HorizontalPodAutoscaler: { model: HorizontalPodAutoscaler, types: 'kubernetes-models/autoscaling/v2' },
  Cluster: { model: Cluster, types: '@kubernetes-models/cloudnative-pg/postgresql.cnpg.io/v1' },
  ScheduledBackup: { model: ScheduledBackup, types: '@kubernetes-models/cloudnative-pg/postgresql.cnpg.io/v1' },
} as const;
const OBJECT_STORE =
  "import type { IBarmanObjectStoreConfiguration } from '@kubernetes-models/cloudnative-pg/github.com/cloudnative-pg/barman-cloud/pkg/api/BarmanObjectStoreConfiguration';\n" +
  "import type { IObjectMeta } from '@kubernetes-models/apimachinery/apis/meta/v1';\n" +
  "interface IObjectStore { apiVersion: 'barmancloud.cnpg.io/v1'; kind: 'ObjectStore'; metadata: IObjectMeta;\n" +
  '  spec: { retentionPolicy: string; configuration: IBarmanObjectStoreConfiguration } }\n';

const FILES = ['server.yaml', 'database.yaml', 'backups.yaml', 'autoscaler.yaml'];
const manifests: readonly Manifest[] = FILES.flatMap((file) =>
  parseAllDocuments(deployFile(`kubernetes/${file}`)).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() as Manifest;
  }),
);
function manifest<T = Manifest>(kind: string): T {
  const found = manifests.filter((one) => one.kind === kind);
  expect(found.length).toBe(1);
  return found[0] as T;
}

describe('Kubernetes', () => {
  const configuration = deployFile('kubernetes/treadle.toml');
  const kustomization = parse(deployFile('kubernetes/kustomization.yaml')) as {
    readonly resources: readonly string[];
    readonly configMapGenerator: readonly { readonly name: string; readonly files: readonly string[] }[];
    readonly images: readonly { readonly name: string }[];
  };
  const deployment = manifest<IDeployment>('Deployment').spec!;
  const pod = deployment.template.spec!;
  const container = pod.containers[0]!;
  const database = manifest('Cluster') as InstanceType<typeof Cluster>;

  test.each(manifests.filter(({ kind }) => kind !== 'ObjectStore').map((one) => [one.kind, one] as const))(
    'the %s has the values that its schema demands',
    (kind, one) => {
      const { model } = MODELS[kind as keyof typeof MODELS];
      expect([one.apiVersion, one.kind]).toEqual([model.apiVersion, model.kind]);
      expect(() => new model(one as never).validate()).not.toThrow();
    },
  );

  test('no manifest has a field that does not exist', () => {
    const sources = manifests.map((one, at) => {
      const types =
        one.kind === 'ObjectStore'
          ? OBJECT_STORE
          : `import type { I${one.kind} } from '${MODELS[one.kind as keyof typeof MODELS].types}';\n`;
      return [`m${at}.ts`, `${types}export const value: I${one.kind} = ${JSON.stringify(one, null, 1)};\n`] as const;
    });
    // With a misspelled field in each, to see that the compiler finds it.
    const misspelled = sources.map(
      ([name, text]) => [`wrong-${name}`, text.replace('"spec": {', '"spec": {\n"sepc": 1,')] as const,
    );
    const problems = compile([...sources, ...misspelled])
      .trim()
      .split('\n');
    expect(problems.map((line) => /^(.*?)\(.*'"?(\w+)"?' does not exist in type/.exec(line)?.slice(1) ?? line)).toEqual(
      misspelled.map(([name]) => [name, 'sepc']),
    );
  });

  test('everything that is applied exists, and names what exists', () => {
    expect([...kustomization.resources, 'autoscaler.yaml'].toSorted()).toEqual(FILES.toSorted());
    const volumes = new Map(pod.volumes!.map((volume) => [volume.name, volume]));
    expect(container.volumeMounts!.map(({ name }) => name).toSorted()).toEqual([...volumes.keys()].toSorted());
    const generated = kustomization.configMapGenerator[0]!;
    expect(volumes.get('config')!.configMap).toEqual({ name: generated.name });
    expect(generated.files).toEqual(['treadle.toml']);
    expect(kustomization.images.map(({ name }) => name)).toEqual([container.image]);
    // The operator names its Secrets after the cluster.
    const name = database.metadata!.name!;
    expect(volumes.get('database-ca')!.secret!.secretName).toBe(`${name}-ca`);
    expect(container.env).toEqual([
      { name: 'PGPASSWORD', valueFrom: { secretKeyRef: { name: `${name}-app`, key: 'password' } } },
    ]);
    const backup = manifest('ScheduledBackup') as InstanceType<typeof ScheduledBackup>;
    expect(backup.spec!.cluster.name).toBe(name);
    expect(backup.spec!.pluginConfiguration!.name).toBe(database.spec!.plugins![0]!.name);
    expect(database.spec!.plugins![0]!.parameters!['barmanObjectName']).toBe(manifest('ObjectStore').metadata.name);
    const target = manifest<IHorizontalPodAutoscaler>('HorizontalPodAutoscaler').spec!.scaleTargetRef;
    expect(target).toEqual({ apiVersion: 'apps/v1', kind: 'Deployment', name: manifest('Deployment').metadata.name });
  });

  test('what selects the servers finds them, and ports have their names', () => {
    const { labels } = deployment.template.metadata!;
    const service = manifest<IService>('Service').spec!;
    const selectors = [
      deployment.selector.matchLabels,
      service.selector,
      manifest<IPodDisruptionBudget>('PodDisruptionBudget').spec!.selector!.matchLabels,
      ...pod.topologySpreadConstraints!.map(({ labelSelector }) => labelSelector!.matchLabels),
      ...pod.affinity!.podAntiAffinity!.preferredDuringSchedulingIgnoredDuringExecution!.map(
        ({ podAffinityTerm }) => podAffinityTerm.labelSelector!.matchLabels,
      ),
    ];
    for (const selector of selectors) expect(selector).toEqual(labels);
    const port = container.ports![0]!;
    expect(container.args![container.args!.indexOf('--port') + 1]).toBe(String(port.containerPort));
    expect(service.ports!.map(({ targetPort }) => targetPort)).toEqual([port.name]);
    const probe = (name: 'startupProbe' | 'livenessProbe' | 'readinessProbe'): unknown => container[name]?.httpGet;
    expect(probe('startupProbe')).toEqual({ path: '/healthz', port: port.name });
    expect(probe('livenessProbe')).toEqual({ path: '/healthz', port: port.name });
    expect(probe('readinessProbe')).toEqual({ path: '/readyz', port: port.name });
  });

  test('the servers have no rights, and the time that they need', () => {
    expect(pod).toMatchObject({ automountServiceAccountToken: false, securityContext: { runAsNonRoot: true } });
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    expect(container.resources).toMatchObject({ requests: { cpu: '500m' }, limits: { memory: '2Gi' } });
    const preStop = (container as IContainer).lifecycle!.preStop!.sleep!.seconds;
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(preStop + graceSeconds(configuration) + 6);
  });

  test('every server that there can be gets its connections', () => {
    const most = manifest<IHorizontalPodAutoscaler>('HorizontalPodAutoscaler').spec!.maxReplicas;
    const { maxSurge } = deployment.strategy!.rollingUpdate!;
    const connections = Number(database.spec!.postgresql!.parameters!['max_connections']);
    expect((most + Number(maxSurge)) * 12).toBeLessThan(connections);
    expect(database.spec!.postgresql!.synchronous).toMatchObject({ number: 1, dataDurability: 'required' });
    expect(database.spec!.instances).toBeGreaterThan(2);
  });

  test('a server starts with the arguments and the configuration', async () => {
    const url = /^url = "(.*)"$/m.exec(configuration)![1]!;
    const { bootstrap } = database.spec!;
    const stored = new URL(url);
    expect([stored.username, stored.password, stored.hostname, stored.pathname]).toEqual([
      bootstrap!.initdb!.owner,
      '',
      `${database.metadata!.name!}-rw`,
      `/${bootstrap!.initdb!.database}`,
    ]);
    const ca = pod.volumes!.find(({ name }) => name === 'database-ca')!.secret!.items![0]!.path;
    const mounted = container.volumeMounts!.find(({ name }) => name === 'database-ca')!.mountPath;
    expect(stored.searchParams.get('sslmode')).toBe('verify-full');
    expect(stored.searchParams.get('sslrootcert')).toBe(path.posix.join(mounted, ca));

    await using store = await testDatabase();
    using machine = await prepareMachine(configuration.replace(url, store.url));
    const local = machine.localArguments(container.args!, {
      '/etc/treadle/treadle.toml': 'treadle.toml',
      '/data': 'work',
    });
    expect(local.join(' ')).not.toMatch(/\/(etc|data)\b/);
    expect(await machine.whileServing(local, machine.expectAnswers)).toBe(0);
  });

  test('the configuration does not start before it has a key', async () => {
    using machine = await prepareMachine('');
    const { io, written } = machine.io();
    const file = path.join(root, 'deploy/kubernetes/treadle.toml');
    const args = ['serve', '--host', '0.0.0.0', '--port', '0', '--config', file, '--store', 'memory:'];
    expect(await main(args, { ...io, env })).toBe(2);
    expect(written.stderr).toContain('key');
  });
});

type Fields = Readonly<Record<string, unknown>>;

/** There is no package with the current schema of compose files, so these are the fields that ours may have. */
const COMPOSE_FIELDS = {
  file: ['x-treadle', 'services', 'networks', 'volumes'],
  service: [
    'build',
    'cap_drop',
    'command',
    'depends_on',
    'env_file',
    'environment',
    'healthcheck',
    'image',
    'init',
    'mem_limit',
    'networks',
    'pids_limit',
    'ports',
    'read_only',
    'restart',
    'security_opt',
    'shm_size',
    'stop_grace_period',
    'tmpfs',
    'volumes',
  ],
  build: ['context', 'dockerfile'],
  healthcheck: ['interval', 'retries', 'start_period', 'test', 'timeout'],
} as const;

describe('compose', () => {
  const text = deployFile('postgres/compose.yaml');
  const file = parse(text, { merge: true }) as Fields & {
    readonly services: Readonly<Record<string, Fields>>;
    readonly networks: Fields;
    readonly volumes: Fields;
  };
  const { postgres, balancer, ...servers } = file.services;
  const server = servers['treadle-1']!;
  const folder = path.join(root, 'deploy/postgres');

  test('has only fields that exist, and names what exists', () => {
    const expectFields = (value: unknown, allowed: readonly string[]): void =>
      expect(Object.keys((value ?? {}) as object).filter((field) => !allowed.includes(field))).toEqual([]);
    expectFields(file, COMPOSE_FIELDS.file);
    const used = { networks: new Set(['default']), volumes: new Set<string>() };
    for (const service of Object.values(file.services)) {
      expectFields(service, COMPOSE_FIELDS.service);
      expectFields(service['build'], COMPOSE_FIELDS.build);
      expectFields(service['healthcheck'], COMPOSE_FIELDS.healthcheck);
      for (const network of (service['networks'] ?? []) as readonly string[]) used.networks.add(network);
      for (const volume of (service['volumes'] ?? []) as readonly string[]) {
        const [from] = volume.split(':');
        if (from!.startsWith('.')) expect([from, existsSync(path.join(folder, from!))]).toEqual([from, true]);
        else used.volumes.add(from!);
      }
      for (const [other, { condition }] of Object.entries((service['depends_on'] ?? {}) as Record<string, Fields>)) {
        expect([condition, file.services[other]?.['healthcheck']]).toEqual(['service_healthy', expect.anything()]);
      }
    }
    expect([...used.networks].toSorted()).toEqual(Object.keys(file.networks).toSorted());
    expect([...used.volumes].toSorted()).toEqual(Object.keys(file.volumes).toSorted());
    const { context, dockerfile } = server['build'] as Readonly<Record<string, string>>;
    expect(existsSync(path.resolve(folder, context!, dockerfile!))).toBe(true);
  });

  test('no password is in the file, and it does not start without one', () => {
    const required = '${POSTGRES_PASSWORD:?set it in deploy/postgres/.env}';
    expect(postgres!['environment']).toMatchObject({ POSTGRES_PASSWORD: required });
    expect(server['environment']).toEqual({ PGPASSWORD: required });
    expect(text.match(/PASSWORD: (?!\$\{POSTGRES_PASSWORD:\?)/g)).toBe(null);
  });

  test('only the balancer can be reached from outside, and the servers have no rights', () => {
    expect(Object.entries(file.services).flatMap(([name, { ports }]) => (ports === undefined ? [] : [name]))).toEqual([
      'balancer',
    ]);
    expect(balancer!['ports']).toEqual(['127.0.0.1:3210:3210']);
    expect(postgres!['networks']).toEqual(['database']);
    expect(file.networks['database']).toEqual({ internal: true });
    expect(server).toMatchObject({ init: true, read_only: true, cap_drop: ['ALL'], restart: 'unless-stopped' });
    expect(Number.parseInt(String(server['stop_grace_period']), 10)).toBeGreaterThan(
      graceSeconds(deployFile('treadle.toml')) + 6,
    );
  });

  test('the balancer knows every server, and asks it whether it is ready', () => {
    const caddyfile = deployFile('postgres/Caddyfile');
    const port = (server['command'] as string[])[(server['command'] as string[]).indexOf('--port') + 1];
    expect(/reverse_proxy (.*) \{/.exec(caddyfile)![1]!.split(' ')).toEqual(
      Object.keys(servers).map((name) => `${name}:${port}`),
    );
    for (const one of Object.values(servers)) expect(one).toEqual(server);
    for (const line of ['health_uri /readyz', 'flush_interval -1']) expect(caddyfile).toContain(`\t${line}\n`);
  });

  test('a server starts with the arguments and the configuration', async () => {
    const args = server['command'] as readonly string[];
    const { POSTGRES_USER: user, POSTGRES_DB: name } = postgres!['environment'] as Readonly<Record<string, string>>;
    const url = `postgres://${user}@postgres/${name}`;
    expect(args).toContain(url);
    await using store = await testDatabase();
    using machine = await prepareMachine(deployFile('treadle.toml'));
    const local = machine.localArguments(args, {
      [url]: store.url,
      '/etc/treadle/treadle.toml': 'treadle.toml',
      '/data/work': 'work',
    });
    expect(local.join(' ')).not.toMatch(/\/(etc|data)\//);
    expect(await machine.whileServing(local, machine.expectAnswers)).toBe(0);
  });
});

/** Compiles files that use the packages of the workspace, and returns what is wrong. */
function compile(files: readonly (readonly [name: string, text: string])[]): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-manifests-'));
  try {
    symlinkSync(path.join(root, 'node_modules'), path.join(folder, 'node_modules'), 'junction');
    const compilerOptions = {
      strict: true,
      noEmit: true,
      module: 'nodenext',
      target: 'es2024',
      types: [],
      skipLibCheck: true,
    };
    writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}');
    writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }));
    for (const [name, text] of files) writeFileSync(path.join(folder, name), text);
    const compiler = path.join(root, 'node_modules/typescript/bin/tsc');
    const { stdout, stderr } = spawnSync(process.execPath, [compiler, '-p', '.'], { cwd: folder, encoding: 'utf8' });
    return stdout + stderr;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
