import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** What the programs of the tools have written, outside of every store: one line when a call acts. */
export interface LedgerLine {
  readonly tool: string;
  readonly tag: string;
  readonly step: number;
  /** The key of the call: `run/effect`. */
  readonly key: string;
}

/** The tools. All have the effect `once`; for `wire`, it can be found out afterwards whether it has acted. */
export const TOOLS = ['order', 'wire'] as const;

/** Writes a package of tools with their programs, and the folder of the package into `skills`. */
export function writeTools(skills: string, ledger: string): void {
  const folder = path.join(skills, 'bank');
  mkdirSync(path.join(folder, 'bin'), { recursive: true });
  const tool = (name: string, more: string): string => `
[[tools]]
name = "${name}"
binary = "bin/${name}"
description = "Acts"
parameters = { run = { type = "string", required = true }, step = { type = "integer", required = true } }
permissions = []
sandboxing = "none"
effect = "once"
touches = []
${more}`;
  const manifest = `[skill]\nname = "bank"\nversion = "1.0.0"\ndescription = "Acts"\n`;
  const tools = tool('order', '') + tool('wire', 'verify = "bin/wired"\n');
  writeFileSync(path.join(folder, 'skill.toml'), manifest + tools);
  const program = (name: string, lines: string): void =>
    writeFileSync(path.join(folder, 'bin', name), `#!/bin/sh\n${lines}\n`, { mode: 0o755 });
  // One write of one line, so a line is there completely or not at all.
  for (const name of TOOLS) program(name, `echo "${name} $2 $4 $TREADLE_CALL_KEY" >> '${ledger}'\necho "${name} $4"`);
  program('wired', `grep -q "^wire $2 $4 $TREADLE_CALL_KEY\\$" '${ledger}' || exit 75\necho "wire $4"`);
  writeFileSync(ledger, '');
}

export function readLedger(file: string): readonly LedgerLine[] {
  if (!existsSync(file)) return [];
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [tool, tag, step, key] = line.split(' ') as [string, string, string, string];
      return { tool, tag, step: Number(step), key };
    });
}
