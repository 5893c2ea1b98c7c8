import type { Policy, Verdict } from './port.ts';
import { smallerLimits } from './applied.ts';
import { stricterVerdict } from './verdicts.ts';

/*
 * Several policies as one: the strictest verdict applies. A child run has the policies of its parent and its own.
 */

/** The rules of several policies, as they are recorded. Null for a policy that is code. */
interface CombinedRules {
  readonly all: readonly unknown[];
}

/** Undefined without policies. One that is there twice judges once, because it counts the calls that it judges. */
export function combinedPolicy(given: readonly Policy[]): Policy | undefined {
  const policies = [...new Set(given)];
  if (policies.length < 2) return policies[0];
  const hasRules = policies.some(({ rules }) => rules !== undefined);
  const exposing = policies.flatMap(({ exposes }) => exposes ?? []);
  return {
    async judge(calls, context) {
      const results = await Promise.all(policies.map((policy) => policy.judge(calls, context)));
      return calls.map((_, index) => {
        const verdicts = results.map((result) => result[index]);
        // Without a verdict, the driver denies the call.
        return verdicts.reduce(stricterVerdict) as Verdict;
      });
    },
    limits: (autonomy, run) =>
      policies.reduce((limits, policy) => smallerLimits(limits, policy.limits?.(autonomy, run) ?? {}), {}),
    ...(exposing.length > 0 && {
      async exposes(...touched) {
        const told = await Promise.all(exposing.map((exposes) => exposes(...touched)));
        return told.flatMap((kinds = []) => kinds);
      },
    }),
    ...(hasRules && { rules: { all: policies.map(({ rules = null }) => rules) } satisfies CombinedRules }),
    withRules: (recorded) => policiesWith(policies, recorded),
  };
}

/** Each recorded rules belong to the policy at the same place. If the number of policies changed, to the first with rules. */
function policiesWith(policies: readonly Policy[], recorded: unknown): Policy {
  const { all = [recorded] } = (recorded ?? {}) as Partial<CombinedRules>;
  const first = policies.find(({ withRules }) => withRules !== undefined);
  const applied = all.flatMap((rules, index) => {
    if (rules === null) return [];
    const policy = all.length === policies.length ? policies[index]! : first;
    if (!policy?.withRules) throw new Error('the run has recorded rules, and no policy has "withRules" to apply them');
    return policy.withRules(rules);
  });
  return combinedPolicy(applied) ?? policies[0]!;
}
