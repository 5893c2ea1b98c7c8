import type { ResultReport } from '../protocol/report.ts';

/** Answers to operations, for those that are delivered twice. An operation is executed once, also if its answer is not kept any more. */
export interface Answers {
  /** Calls `work` for an id that is new. `gone`: it was called, and the answer was too large to keep. */
  once(id: string, work: () => Promise<ResultReport>): Promise<ResultReport | 'gone'>;
}

interface Limits {
  readonly maxAnswers: number;
  /** Characters of all answers that are kept. */
  readonly maxChars: number;
}

export function rememberedAnswers({ maxAnswers, maxChars }: Limits): Answers {
  const answers = new Map<string, Promise<ResultReport | 'gone'>>();
  /** Of those that are kept, oldest first. */
  const sizes = new Map<string, number>();
  let chars = 0;

  function drop(id: string): void {
    chars -= sizes.get(id) ?? 0;
    sizes.delete(id);
  }

  function keep(id: string, size: number): void {
    if (!answers.has(id)) return;
    sizes.set(id, size);
    chars += size;
    for (const [oldest] of sizes) {
      if (chars <= maxChars || oldest === id) return;
      drop(oldest);
      answers.set(oldest, Promise.resolve('gone'));
    }
  }

  return {
    once(id, work) {
      const known = answers.get(id);
      if (known) return known;
      const answer = work();
      answers.set(id, answer);
      void answer.then((report) => keep(id, JSON.stringify(report).length));
      const [oldest] = answers.keys();
      if (answers.size > maxAnswers) {
        answers.delete(oldest!);
        drop(oldest!);
      }
      return answer;
    },
  };
}
