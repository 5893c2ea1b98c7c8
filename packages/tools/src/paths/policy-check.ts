import { resolve } from 'node:path';
import type { RuleName, RulePolicy } from '@treadle/core/policy';
import { outsideText } from '../denied.ts';
import type { PathCheck } from './guarded-files.ts';
import { inside, lexical } from './path-facts.ts';

/** The rules about a file, whichever tool uses it. */
const FILE_RULES: readonly RuleName[] = ['facts', 'autonomy', 'permissions', 'paths'];

/**
 * What a policy says about each file when it is used, and about the place that was opened: only what the call named was judged
 * before. What is not denied inside the folder may be used, because people have approved the call, or a rule allows it.
 * Outside, that applies only without a symbolic link: a link may lead elsewhere since the call was judged, so its target
 * must be allowed.
 */
export function policyCheck(policy: Pick<RulePolicy, 'explain'>, folder: string): PathCheck {
  const top = lexical(resolve(folder));
  const verdictOn = async (
    use: 'read' | 'write',
    path: string,
    narrowedBy: readonly string[] | undefined,
  ): Promise<'allow' | 'ask' | 'deny'> => {
    const { rules } = await policy.explain(
      { name: '', touches: [{ type: use, path }] },
      narrowedBy ? { narrowedBy } : {},
    );
    const verdicts = rules.flatMap(({ rule, verdict }) => (FILE_RULES.includes(rule) ? verdict : []));
    if (verdicts.includes('deny')) return 'deny';
    return verdicts.includes('ask') ? 'ask' : 'allow';
  };
  return async ({ path, target = path }, use, narrowedBy) => {
    const here = await verdictOn(use, path, narrowedBy);
    const there = path === target ? here : await verdictOn(use, target, narrowedBy);
    if (here === 'deny' || there === 'deny')
      return `The policy does not allow ${use}s of ${JSON.stringify(path)}. Use other files.`;
    const isInside = inside(top, path) && inside(top, target);
    return isInside || path === target || there === 'allow' ? undefined : outsideText(path);
  };
}
