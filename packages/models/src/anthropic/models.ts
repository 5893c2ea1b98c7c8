/**
 * What models differ in, told from their names. A host may write a name with something before it and after it
 * (`us.anthropic.claude-opus-4-5-20251101-v1:0`), and `4.5` for `4-5`. Models that are not known are taken to be newer
 * than those that are.
 */

/**
 * How a model is told to think. `adaptive`: it decides itself, and is told how hard to try. `budget`: it is given a
 * number of tokens, the only form that models before Claude 4.6 know, and that newer ones refuse.
 */
export type ThinkingForm = 'adaptive' | 'budget';

export interface ModelTraits {
  readonly thinking: ThinkingForm;
  /** It thinks also where nothing is said of thinking. */
  readonly thinksUnasked: boolean;
  /** It can be made to call a tool. */
  readonly forcedTools: boolean;
  /** It takes `temperature` and `top_p`. */
  readonly sampling: boolean;
}

/** Claude 3 to 4.5, and then 4.6: no more of them are made, so the lists are final. */
const BUDGETED = /claude-(?:3|(?:opus|sonnet|haiku)-4(?:$|[@:]|[-.](?:[015](?!\d)|20\d{6}|v\d|latest)))/;
const ADAPTIVE_WITH_SAMPLING = /claude-(?:opus|sonnet)-4[-.]6(?!\d)/;

/** All others from the fifth generation on. */
const THINKING = /claude-(?:fable|mythos|[a-z]+-(?:[5-9]|\d\d))/;

/** Fable, Mythos, and Opus and Sonnet after 5. Haiku 5.5 takes it. */
const UNFORCEABLE = /claude-(?:fable|mythos|(?:opus|sonnet)-(?:5[-.][1-9](?!\d)|[6-9]|\d\d))/;

export function traitsOf(model: unknown): ModelTraits {
  const name = typeof model === 'string' ? model : '';
  const budgeted = BUDGETED.test(name);
  return {
    thinking: budgeted ? 'budget' : 'adaptive',
    thinksUnasked: THINKING.test(name),
    forcedTools: !UNFORCEABLE.test(name),
    sampling: budgeted || ADAPTIVE_WITH_SAMPLING.test(name),
  };
}
