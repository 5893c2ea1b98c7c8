import { fork } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DEVICE_EXEC_ARGV, deviceProgram, SKILL_FOLDERS } from './program-file.ts';

export interface DemoDeviceOptions {
  readonly broker: string;
  readonly prefix: string;
  readonly id: string;
  /** Lines of its log. */
  readonly onLog?: (line: string) => void;
}

export interface DemoDevice {
  readonly pid: number | undefined;
  /** Its process has ended. */
  readonly ended: Promise<void>;
  close(): Promise<void>;
}

const CLOSE_MS = 5_000;

/** Starts a device on this machine, in a process of its own and in a folder that is removed with it, with the tools of a Pi. */
export async function startDemoDevice({ broker, prefix, id, onLog }: DemoDeviceOptions): Promise<DemoDevice> {
  const folder = await mkdtemp(join(tmpdir(), 'treadle-demo-device-'));
  const places = SKILL_FOLDERS.map((folder) => fileURLToPath(new URL('pi-tools', folder)));
  const skills = places.find((path) => existsSync(join(path, 'skill.toml')));
  for (const name of ['work', 'skills']) await mkdir(join(folder, name));
  await writeFile(join(folder, 'work', 'README.txt'), 'This is the folder of the demo device.\n');
  await writeFile(join(folder, 'edge.toml'), demoConfig({ broker, prefix, id, skills }));
  const child = fork(deviceProgram('main'), [], {
    cwd: folder,
    execArgv: [...DEVICE_EXEC_ARGV],
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    for (const line of text.split('\n')) if (line !== '') onLog?.(line);
  });
  const ended = new Promise<void>((done) => {
    child.once('exit', () => done());
    child.once('error', () => done());
  });
  return {
    pid: child.pid,
    ended,
    async close() {
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), CLOSE_MS);
      await ended;
      clearTimeout(timer);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

interface DemoConfig extends Pick<DemoDeviceOptions, 'broker' | 'prefix' | 'id'> {
  readonly skills: string | undefined;
}

function demoConfig({ broker, prefix, id, skills }: DemoConfig): string {
  const text = JSON.stringify;
  return `[agent]
id = ${text(id)}
type = "demo"
capabilities = ["file_read", "file_write", "shell"]

[tools]
folder = "work"
offer = ["read-only", "packages"]
skills_path = ${text(skills ?? 'skills')}
ops = false

[edge]
broker = ${text(broker)}
topic_prefix = ${text(prefix)}
store = "store"
shutdown_grace_ms = 1000

[policy.paths]
read = ["**", "/etc/hostname", "/sys/class/thermal", "/dev/gpiomem"]
write = ["**", "/dev/gpiomem"]
only = ["read", "write"]
`;
}
