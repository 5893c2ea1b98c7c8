import { describe, expect, it } from 'vitest';
import { parseSkillFile, SkillFileError, type SkillFile } from './skill-file.ts';

const READ = { description: 'Read a file', parameters: { type: 'object', properties: { path: { type: 'string' } } } };

function parse(text: string): SkillFile {
  return parseSkillFile(text, { file: 'skill.toml', builtIns: new Map([['read', READ]]) });
}

function problemsOf(text: string): readonly string[] {
  try {
    parse(text);
  } catch (error) {
    if (error instanceof SkillFileError) return error.problems;
    throw error;
  }
  return [];
}

describe('a file', () => {
  it('takes over what it leaves out from the built-in tool of that name', () => {
    expect(parse('[[tools]]\nname = "read"\nbinary = "bin/dt-read"\n')).toEqual({
      version: '0.0.0',
      description: '',
      tools: [
        {
          name: 'read',
          ...READ,
          version: '0.0.0',
          binary: 'bin/dt-read',
          platforms: {},
          input: 'arguments',
          timeoutMs: 30_000,
          permissions: [],
          effect: 'once',
          line: 1,
        },
      ],
    });
  });

  it('can say everything', () => {
    const { tools, ...about } = parse(`
[skill]
name = "weather"
version = "2.1.0"
description = "Weather\\u200b"
author = "somebody"

[[tools]]
name = "forecast"
binary = "bin/forecast"
description = "The forecast\\u0007"
sandboxing = "bubblewrap"
timeout_ms = 5000
permissions = ["network"]
version = "3.0"
input = "json"
effect = "once"
verify = "bin/verify"
touches = [{ type = "url", url = "https://weather.example/{city}" }]
[tools.platforms]
linux-arm64 = "bin/forecast-arm64"
[tools.parameters]
required = ["city"]
[tools.parameters.properties.city]
type = "string"
description = "Where"
[tools.parameters.properties.days]
type = "integer"
required = true
`);
    expect(about).toEqual({ name: 'weather', version: '2.1.0', description: 'Weather' });
    expect(tools).toEqual([
      {
        name: 'forecast',
        description: 'The forecast',
        binary: 'bin/forecast',
        sandboxing: 'bubblewrap',
        timeoutMs: 5_000,
        permissions: ['network'],
        version: '3.0',
        input: 'json',
        effect: 'once',
        verify: 'bin/verify',
        touches: [{ type: 'url', url: 'https://weather.example/{city}' }],
        platforms: { 'linux-arm64': 'bin/forecast-arm64' },
        parameters: {
          type: 'object',
          properties: { city: { type: 'string', description: 'Where' }, days: { type: 'integer' } },
          required: ['city', 'days'],
          additionalProperties: false,
        },
        line: 8,
      },
    ]);
  });

  it.each([
    ['a table of parameters', `parameters = { path = "string", n = { type = "integer", required = true } }`],
    [
      'JSON text',
      `parameters = '''{"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}, "required": ["n"]}'''`,
    ],
    [
      'a schema in tables',
      `parameters.properties.path.type = "string"\nparameters.properties.n.type = "integer"\nparameters.required = ["n"]`,
    ],
  ])('may write parameters as %s', (_, line) => {
    expect(parse(`[[tools]]\nname = "x"\nbinary = "x"\ndescription = "X"\n${line}\n`).tools[0]!.parameters).toEqual({
      type: 'object',
      properties: { path: { type: 'string' }, n: { type: 'integer' } },
      required: ['n'],
      additionalProperties: false,
    });
  });
});

it('names the first of many mistakes, in little time', () => {
  const problems = problemsOf(Array.from({ length: 30_000 }, (_, index) => `k${index} = 1`).join('\n'));
  expect(problems).toHaveLength(21);
  expect(problems.at(-1)).toBe('skill.toml: There are 29980 more problems.');
});

const TOOL = '[[tools]]\nname = "x"\nbinary = "bin/x"\ndescription = "X"\n';

it.each([
  ['name = ', 'skill.toml:1:8: This is not TOML: '],
  ['[[tool]]\nname = "x"', 'skill.toml:1: tool is not known, did you mean tools? Allowed here: skill, tools.'],
  ['[[tools]]\nbinary = "x"', 'skill.toml:1: tools[0].name is missing: the name that models call the tool by.'],
  ['[[tools]]\nname = "a b"', 'skill.toml:2: tools[0].name must be 1 to 48 letters, digits, "_" or "-".'],
  ['[[tools]]\nname = "x"\nbinary = "x"', 'skill.toml:1: tools[0].description is missing: what x does, for the model.'],
  [
    '[[tools]]\nname = "read"',
    'skill.toml:1: tools[0].binary is missing: the program of read, relative to the folder of this file.',
  ],
  [`${TOOL}timeout_ms = 0`, 'skill.toml:5: tools[0].timeout_ms must be a whole number from 1 to 300000, but is 0.'],
  [
    `${TOOL}sandboxing = "docker"`,
    'skill.toml:5: tools[0].sandboxing must be one of auto, none, bubblewrap, firejail, podman.',
  ],
  [`${TOOL}effect = "safe"`, 'skill.toml:5: tools[0].effect must be one of pure, idempotent, once.'],
  [
    `${TOOL}effect = "pure"\nverify = "bin/v"`,
    'skill.toml:6: tools[0].verify has no effect if effect is not "once". Remove one of them.',
  ],
  [`${TOOL}version = "new"`, 'skill.toml:5: tools[0].version must be a version such as "1.2.0".'],
  [
    `${TOOL}platforms."a/b" = "x"`,
    'skill.toml:5: tools[0].platforms.a/b must be a platform such as linux, linux-arm64 or darwin-arm64.',
  ],
  [`${TOOL}parameters = "path"`, 'skill.toml:5: tools[0].parameters must be a table, or the JSON text of a schema.'],
  [
    `${TOOL}parameters = { path = 1 }`,
    'skill.toml:5: tools[0].parameters.path must be a type such as "string", or a table with one.',
  ],
  [
    `${TOOL}parameters = { "a b" = "string" }`,
    'skill.toml:5: tools[0].parameters.a b must have a name of letters, digits, "_", "-" and ".".',
  ],
  [
    `${TOOL}parameters.properties.a.type = "string"\nparameters.required = ["b"]`,
    'skill.toml:6: tools[0].parameters.required names "b", which is not a parameter.',
  ],
  [
    `${TOOL}parameters = { path = { type = "string", enum = ["a\\u200b"] } }`,
    'skill.toml:5: tools[0].parameters cannot be used: a schema has invisible characters.',
  ],
  [
    `${TOOL}touches = [{ type = "read", path = "{file}" }]`,
    'skill.toml:5: tools[0].touches[0].path names {file}, which is not a parameter.',
  ],
  [
    `${TOOL}touches = [{ type = "read", url = "x" }]`,
    'skill.toml:5: tools[0].touches[0].url does not belong to the type "read", which has path.',
  ],
  [
    `${TOOL}touches = [{ path = "x" }]`,
    'skill.toml:5: tools[0].touches[0].type is missing: one of read, write, command, url, session, device.',
  ],
  [
    `${TOOL}touches = [{ type = "unknown" }]`,
    'skill.toml:5: tools[0].touches[0].type must be one of read, write, command, url, session, device.',
  ],
  [TOOL.repeat(129), 'skill.toml:1: tools has 129 entries, and at most 128 are allowed.'],
])('names the line and the key of a mistake: %j', (text, problem) => {
  expect(problemsOf(text)[0]).toContain(problem);
});
