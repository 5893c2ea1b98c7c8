/**
 * How models differ, derived from their names. A host may add a prefix and a suffix to a name
 * (`us.anthropic.claude-opus-4-5-20251101-v1:0`), and write `4.5` for `4-5`. Unknown models are assumed to be newer than
 * the known ones.
 */

/**
 * How thinking is requested. `adaptive`: the model decides how much to think, guided by an effort. `budget`: by a number of
 * tokens, the only form that models before Claude 4.6 support, and that newer ones reject.
 */
export type ThinkingForm = 'adaptive' | 'budget';

export interface ModelTraits {
  readonly thinking: ThinkingForm;
  /** Whether it thinks by default. */
  readonly thinksByDefault: boolean;
  /** Whether it can be forced to call a tool. */
  readonly forcedTools: boolean;
  /** Whether it accepts `temperature` and `top_p`. */
  readonly sampling: boolean;
}

/** Claude 3 to 4.5, and 4.6. No more of these models will appear, so the lists are final. */
const BUDGETED = /claude-(?:3|(?:opus|sonnet|haiku)-4(?:$|[@:]|[-.](?:[015](?!\d)|20\d{6}|v\d|latest)))/;
const ADAPTIVE_WITH_SAMPLING = /claude-(?:opus|sonnet)-4[-.]6(?!\d)/;

/** All models from the fifth generation on. */
const THINKING_BY_DEFAULT = /claude-(?:fable|mythos|[a-z]+-(?:[5-9]|\d\d))/;

/** Fable, Mythos, and Opus and Sonnet after 5. Haiku 5.5 can be forced. */
const UNFORCEABLE = /claude-(?:fable|mythos|(?:opus|sonnet)-(?:5[-.][1-9](?!\d)|[6-9]|\d\d))/;

export function traitsOf(model: unknown): ModelTraits {
  const name = typeof model === 'string' ? model : '';
  const budgeted = BUDGETED.test(name);
  return {
    thinking: budgeted ? 'budget' : 'adaptive',
    thinksByDefault: THINKING_BY_DEFAULT.test(name),
    forcedTools: !UNFORCEABLE.test(name),
    sampling: budgeted || ADAPTIVE_WITH_SAMPLING.test(name),
  };
}
