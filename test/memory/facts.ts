import type { Embedder } from '@treadle/core/memory';

/* What is told in earlier sessions, and asked later. */

export interface Fact {
  readonly told: string;
  readonly asked: string;
}

const fact = (told: string, asked: string): Fact => ({ told, asked });

/** The question has words of the fact. */
export const SAME_WORDS: readonly Fact[] = [
  fact('My dog is called Rex.', 'What is my dog called?'),
  fact('My birthday is on 4 March.', 'When is my birthday?'),
  fact('I was born in Bergen.', 'Where was I born?'),
  fact('The password of the guest network is on the fridge.', 'Where is the password of the guest network?'),
  fact('Our release is every second Tuesday.', 'On which day is our release?'),
  fact('The staging database runs PostgreSQL 16.', 'Which PostgreSQL does the staging database run?'),
  fact('Invoices go to accounts@acme.example.', 'Where do invoices go?'),
  fact('My favourite colour is green.', 'What is my favourite colour?'),
  fact('The greenhouse has to be watered at 7 in the morning.', 'When is the greenhouse watered?'),
  fact('Sensor 12 in the greenhouse is broken.', 'Which sensor is broken?'),
  fact('I prefer answers in French.', 'In which language do I prefer answers?'),
  fact('The code review needs two approvals.', 'How many approvals does a code review need?'),
  fact('My daughter plays the cello.', 'What does my daughter play?'),
  fact('The backup runs at 3 at night.', 'When does the backup run?'),
  fact('Use tabs in the Go repository.', 'Tabs or spaces in the Go repository?'),
  fact('Our supplier of paper is Nordpapir.', 'Who is our supplier of paper?'),
  fact('The meeting room on the second floor has no projector.', 'Which meeting room has no projector?'),
  fact('My passport expires in 2031.', 'When does my passport expire?'),
  fact('The API of the weather station has a limit of 60 requests a minute.', 'What is the limit of the weather API?'),
  fact('The harbour pilot is Captain Holm.', 'Who is the harbour pilot?'),
  fact('We call the billing service Tallboy.', 'How do we call the billing service?'),
  fact('The spare key is under the blue flowerpot.', 'Where is the spare key?'),
  fact('The lift is serviced in October.', 'When is the lift serviced?'),
  fact('Customer 8841 pays in Swiss francs.', 'How does customer 8841 pay?'),
  fact('My tax number ends with 77.', 'How does my tax number end?'),
];

/** The question says it in other words. */
export const OTHER_WORDS: readonly Fact[] = [
  fact('I drive a red Volvo.', 'Which car do I have?'),
  fact('Nuts make me ill.', 'What am I allergic to?'),
  fact('My wife is called Ingrid.', 'Who is my spouse?'),
  fact('I work as a nurse.', 'What is my job?'),
  fact('We moved to Oslo last spring.', 'In which city do we live?'),
  fact('I never eat meat.', 'Which diet do I follow?'),
  fact('The deploys hang when the disk is full.', 'Why does our release get stuck?'),
  fact('Ping Marta before you touch the firewall.', 'Who must be asked about network security changes?'),
  fact('My son is nine.', 'How old is my boy?'),
  fact('I get up at five.', 'When do I wake in the morning?'),
  fact('I take two pills for blood pressure each day.', 'Which medicine do I need?'),
  fact('Our flat is on the third floor.', 'Where in the building is our apartment?'),
  fact('The kettle trips the fuse.', 'What breaks the electricity?'),
  fact('I play chess on Fridays.', 'What is my hobby?'),
  fact('My boss is Hanne.', 'Who is my manager?'),
  fact('Write to me by mail, not by phone.', 'How do I want to be contacted?'),
  fact('The cat sleeps in the attic.', 'Where is the kitten at night?'),
  fact('I earn 52,000 a year.', 'How big is my salary?'),
  fact('The trousers should be size 34.', 'Which clothes fit me?'),
  fact('We pay 900 for the flat each month.', 'How expensive is the rent?'),
  fact('I am learning Portuguese.', 'Which language do I study?'),
  fact('Our kids are afraid of thunder.', 'What scares the children?'),
  fact('The bike is in the cellar.', 'Where is my bicycle?'),
  fact('I like films by Kurosawa.', 'Which movies do I enjoy?'),
  fact('The tap in the kitchen drips.', 'Which faucet leaks?'),
];

/** What is remembered beside the facts: about the same things, and of the same length. */
export const OTHERS: readonly string[] = Array.from({ length: 60 }, (_, index) => {
  const things = ['train', 'window', 'report', 'garden', 'bridge', 'song', 'recipe', 'island', 'contract', 'lamp'];
  const verbs = ['is late', 'was painted', 'needs a check', 'is new', 'costs more', 'has a number', 'is old'];
  const when = ['on Monday', 'in May', 'at night', 'in the morning', 'each day', 'last year'];
  const [thing, verb, time] = [things[index % 10]!, verbs[index % 7]!, when[index % 6]!];
  return `The ${thing} ${index} ${verb} ${time}, and we talked about it.`;
});

/** Words of one line mean something similar. */
const MEANINGS: readonly string[] = `
car volvo drive vehicle
allergic nuts ill allergy
wife spouse husband married
work job nurse profession
live moved city oslo town
eat meat diet vegetarian
deploy deploys release rollout
hang stuck blocks
firewall security network
ping ask asked
son boy
nine old age
get up wake morning
pill pills medicine blood
flat apartment
floor building
fuse electricity power kettle
chess hobby play plays
boss manager
mail phone contacted contact write
cat kitten
sleeps night
earn salary year
trousers clothes size fit
pay expensive rent month cost
learning study language portuguese
kids children
afraid scares thunder
bike bicycle
films movies kurosawa
like enjoy favourite prefer
tap faucet kitchen
drips leaks
`
  .trim()
  .split('\n');

const IGNORED = new Set(
  'the a an is in on at of to do does i my me we our which what who where when how why am be by it for and or with as was'.split(
    ' ',
  ),
);
const DIMENSIONS = 512;

/** A small embedder that is the same each time: similar words have the same direction. */
export const toyEmbedder: Embedder = {
  id: 'toy',
  embed: async (texts) => texts.map(vectorOf),
};

function vectorOf(text: string): readonly number[] {
  const vector = Array.from({ length: DIMENSIONS }, () => 0);
  // Every vector has a direction.
  vector[0] = 0.01;
  for (const word of text.toLowerCase().match(/[a-z0-9]+/g) ?? []) {
    if (IGNORED.has(word)) continue;
    const meaning = MEANINGS.findIndex((line) => line.split(' ').includes(word));
    vector[meaning >= 0 ? 1 + meaning : 64 + (hashOf(word) % (DIMENSIONS - 64))]! += 1;
  }
  return vector;
}

function hashOf(word: string): number {
  let hash = 0;
  for (const char of word) hash = (hash * 31 + char.codePointAt(0)!) >>> 0;
  return hash;
}
