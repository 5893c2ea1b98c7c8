/** A tool of a package beside `child_process`, and loading 500 packages. */
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import type { ToolContext, ToolOutput } from '@treadle/core';
import { local } from '@treadle/tools';
import { loadSkillDefinitions, packageTool } from '@treadle/tools/packages';
import { median, msOf, quantile, shown } from './times.ts';

const CALLS = 300;
const PACKAGES = 500;

export async function measurePackages(folder: string): Promise<void> {
  const skills = path.join(folder, 'skills');
  for (let index = 0; index < PACKAGES; index++) writePackage(path.join(skills, `p${index}`), `say${index}`);
  const loads: number[] = [];
  for (let load = 0; load < 5; load++) loads.push(await msOf(() => loadSkillDefinitions(skills)));
  const { tools } = await loadSkillDefinitions(skills);
  if (tools.length !== PACKAGES) throw new Error(`${tools.length} tools`);
  console.log(`loading ${PACKAGES} packages: ${median(loads).toFixed(0)} ms`);

  const tool = packageTool(tools[0]!, local(folder));
  let held: unknown;
  const context = {
    signal: new AbortController().signal,
    key: 'run/t1.tool.0',
    report() {},
    hold: async (_: string, open: () => unknown) => ({ resource: (held ??= await open()), isNew: false }),
  } as unknown as ToolContext;
  const run = promisify(execFile);
  const called = async (): Promise<void> => {
    const result = (await tool.execute!({ word: 'hello' }, context)) as ToolOutput;
    if (result.isError) throw new Error(JSON.stringify(result));
  };
  const times = { packaged: [] as number[], direct: [] as number[] };
  for (let call = -10; call < CALLS; call++) {
    // One after the other, so that both see the same load of the machine.
    const packaged = await msOf(called);
    const direct = await msOf(() => run(tools[0]!.program, ['--word', 'hello'], { cwd: folder }));
    if (call < 0) continue; // warming up
    times.packaged.push(packaged);
    times.direct.push(direct);
  }
  const ratio = median(times.packaged) / median(times.direct);
  const low = quantile(times.packaged, 0.1) / quantile(times.direct, 0.1);
  console.log(
    `a tool of a package beside child_process: a program that prints its arguments, ${CALLS} calls of each, ms a call`,
  );
  console.log(`  child_process  ${shown(times.direct)}`);
  console.log(`  package        ${shown(times.packaged)}`);
  console.log(`  ratio          ${ratio.toFixed(2)} of the medians, ${low.toFixed(2)} of the fastest tenth`);
}

function writePackage(folder: string, name: string): void {
  mkdirSync(path.join(folder, 'bin'), { recursive: true });
  writeFileSync(path.join(folder, 'bin', 'say'), '#!/bin/sh\necho "$@"\n', { mode: 0o755 });
  const text = `[[tools]]\nname = "${name}"\nbinary = "bin/say"\ndescription = "Say it"\nparameters = { word = "string" }\n`;
  writeFileSync(path.join(folder, 'skill.toml'), text);
}
