/**
 * Compares the CPU time of the loop with that of the baseline, and with that of other commits that are named:
 * `npm run bench:baseline -- COMMIT…`. So the commits in which it went can be found.
 */
import { BASELINE, measure, NO_HISTORY, ratiosOf, ROOT, timesOf, treeOf, WORKLOADS } from './baseline.ts';

const commits = [BASELINE, ...process.argv.slice(2)];
const trees = commits.map((commit) => {
  const tree = treeOf(commit);
  if (tree !== undefined) return tree;
  console.error(commit === BASELINE ? NO_HISTORY : `There is no commit ${commit}.`);
  process.exit(1);
});
const names = [...commits.map((commit) => commit.slice(0, 8)), 'this checkout'];
console.log('CPU microseconds per turn, and the ratio to the baseline');
for (const workload of WORKLOADS) {
  const processes = await measure(workload, [...trees, ROOT]);
  const [times, ratios] = [timesOf(processes), ratiosOf(processes)];
  console.log(`${workload.name}, budget ${workload.budget}`);
  for (const [index, name] of names.entries()) {
    console.log(`  ${name.padEnd(16)}${times[index]!.toFixed(2).padStart(7)}${ratios[index]!.toFixed(3).padStart(8)}`);
  }
}
