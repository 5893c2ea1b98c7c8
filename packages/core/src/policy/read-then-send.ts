import type { Cause } from '../machine/exposure.ts';
import { onText, placeText } from './places.ts';
import type { CallFacts, Rule, TouchedCommand } from './rule.ts';
import type { PolicyRules } from './rules.ts';

/*
 * Read, then send: a run that has seen content from outside may do what that content says. If it has seen private data too, each
 * call that could carry something out is asked about, whatever the level, the lists and the grants say.
 */

export function readThenSendRule({ exposure = 'ask' }: PolicyRules): Rule {
  return {
    name: 'exposure',
    judge(facts, { exposure: seen }) {
      if (!seen?.outside || !seen.private) return undefined;
      const way = wayOut(facts);
      if (way === undefined) return undefined;
      const reason =
        `it would ${way}, and the run has seen private data (${causeText(seen.private)}) and content from outside ` +
        `(${causeText(seen.outside)})`;
      return { type: exposure === 'strict' ? 'deny' : 'ask', reason };
    },
    saw(facts, { exposure: seen }) {
      const kinds = [
        ...(seen?.private ? [`private data (${causeText(seen.private)})`] : []),
        ...(seen?.outside ? [`content from outside (${causeText(seen.outside)})`] : []),
      ];
      if (kinds.length === 0) return 'the run has seen neither private data nor content from outside';
      const way = wayOut(facts);
      return `the run has seen ${kinds.join(' and ')}; the call ${way ? `would ${way}` : 'carries nothing out'}`;
    },
  };
}

function causeText({ what, tool, from }: Cause): string {
  const by = tool === undefined ? '' : ` by ${tool}`;
  return `${what}${by}${from === undefined ? '' : ` in ${from}`}`;
}

/** How a call could carry something out; undefined if it certainly cannot. */
function wayOut({ call, clients, unknown, urls, commands, places }: CallFacts): string | undefined {
  if (clients) return undefined;
  if (unknown) return 'do something that its tool does not declare';
  const requested = (call.touches ?? []).find(({ type }) => type === 'url');
  const isWithoutNetwork = requested === undefined && (call.sandbox?.includes('network') ?? false);
  const [place] = places;
  if (place) return `use ${placeText(place)}`;
  if (isWithoutNetwork) return undefined;
  const [url] = urls;
  if (url) return `request ${url.given}${onText(url.on)}`;
  const command = commands.find((one) => !isPureReader(one));
  return command && `run ${JSON.stringify(command.command.slice(0, 200))}, which may reach the network`;
}

/** Programs that only read files and print. */
const READERS: ReadonlySet<string> = new Set(
  (
    'basename cat cmp comm cut date diff dirname du echo expand false file fold grep head ls nl od paste printf pwd ' +
    'readlink realpath rg seq sha256sum sort stat tail tr true uniq wc'
  ).split(' '),
);

function isPureReader({ facts: { programs, touches, urls, unclear, unchecked } }: TouchedCommand): boolean {
  if (unclear !== undefined || unchecked !== undefined || urls.length > 0) return false;
  return (
    programs.every(({ name, unknown }) => READERS.has(name) && !unknown) && touches.every(({ type }) => type === 'read')
  );
}
