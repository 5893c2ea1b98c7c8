import { resolve } from 'node:path';
import type { PolicyRules, RuleName, RulePolicy } from '@treadle/core/policy';
import { outsideText } from '../denied.ts';
import type { NarrowedRun } from '../ops.ts';
import type { PathCheck } from './guarded-files.ts';
import { inside, lexical } from './path-facts.ts';

/** The rules about a file, whichever tool uses it. */
const FILE_RULES: readonly RuleName[] = ['facts', 'autonomy', 'permissions', 'paths'];

/**
 * What a policy and the rules of what narrows the run say about each file when it is used, and about the place that was opened:
 * only what the call named was judged before. What is not denied inside the folder may be used, because people have approved the call, or a rule allows it.
 * Outside, that applies only without a symbolic link: a link may lead elsewhere since the call was judged, so its target
 * must be allowed.
 */
export function policyCheck(policy: Pick<RulePolicy, 'explain' | 'withRules'>, folder: string): PathCheck {
  const top = lexical(resolve(folder));
  const made = new WeakMap<PolicyRules, Judging>();
  /** The rules of a narrowing are judged as the loop does: at the highest level, because that of the run is in its policy. */
  const judgingBy = (rules: PolicyRules): Judging => {
    const known = made.get(rules);
    if (known) return known;
    const judging = policy.withRules({ autonomy: 3, ...rules });
    made.set(rules, judging);
    return judging;
  };
  const verdictOn = async (
    use: 'read' | 'write',
    path: string,
    { narrowedBy, narrowedRules = [] }: NarrowedRun,
  ): Promise<'allow' | 'ask' | 'deny'> => {
    const verdicts = new Set<string>();
    for (const judging of [policy, ...narrowedRules.map(judgingBy)]) {
      const { rules } = await judging.explain(
        { name: '', touches: [{ type: use, path }] },
        narrowedBy ? { narrowedBy } : {},
      );
      for (const { rule, verdict } of rules) if (FILE_RULES.includes(rule)) verdicts.add(verdict);
      if (verdicts.has('deny')) return 'deny';
    }
    return verdicts.has('ask') ? 'ask' : 'allow';
  };
  return async ({ path, target = path }, use, narrowed = {}) => {
    const here = await verdictOn(use, path, narrowed);
    const there = path === target ? here : await verdictOn(use, target, narrowed);
    if (here === 'deny' || there === 'deny')
      return `The policy does not allow ${use}s of ${JSON.stringify(path)}. Use other files.`;
    const isInside = inside(top, path) && inside(top, target);
    return isInside || path === target || there === 'allow' ? undefined : outsideText(path);
  };
}

type Judging = Pick<RulePolicy, 'explain'>;
