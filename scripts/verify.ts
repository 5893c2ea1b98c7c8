/** Runs all checks except the tests, also after a failure: `npm run verify`. */
import { spawnSync } from 'node:child_process';

/** Names of npm scripts. The build is first, because later checks read its output. */
const CHECKS = [
  'build',
  'format:check',
  'lint',
  'boundaries',
  'knip',
  'publint',
  'attw',
  'size',
  'runtimes',
  'packed',
  'snippets',
  'sandboxes',
  'mcp:conformance',
  'clients',
];

const width = Math.max(...CHECKS.map((check) => check.length));
const failed = CHECKS.filter((check) => !passes(check));
console.log(failed.length === 0 ? `all ${CHECKS.length} checks passed` : `failed: ${failed.join(', ')}`);
if (failed.length > 0) process.exitCode = 1;

function passes(check: string): boolean {
  const start = performance.now();
  const { status, stdout, stderr, error } = spawnSync('npm', ['run', '--silent', check], {
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
    shell: process.platform === 'win32',
  });
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  const passed = status === 0;
  console.log(`${check.padEnd(width)}  ${passed ? 'ok' : 'failed'}  ${seconds} s`);
  if (!passed) console.log([stdout, stderr, error?.message].filter(Boolean).join('\n').replaceAll(/^/gm, '    '));
  return passed;
}
