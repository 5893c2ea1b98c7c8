import type { JsonSchema, ToolEffect } from '@treadle/core';

/** A tool of a package as its `skill.toml` defines it, with a program of this machine. */
export interface PackagedTool {
  /** Under which it is offered. Of several versions, the newest has the name of the file, and the others `name_v1`. */
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema;
  readonly version: string;
  /** The file of the program, absolute and without links. */
  readonly program: string;
  /** The program that finds out whether a call took effect. */
  readonly verify?: string;
  /** How the program gets the arguments: as `--name value`, or as JSON on its standard input. */
  readonly input: 'arguments' | 'json';
  readonly timeoutMs: number;
  readonly permissions: readonly string[];
  readonly effect: ToolEffect;
  /** Absent: what it touches is not known. */
  readonly touches?: readonly TouchTemplate[];
  /** The engine that it asks for, or `none`. Absent: what the host uses. */
  readonly sandboxing?: string;
  readonly package: SkillPackage;
  /** As it is in the file. */
  readonly written: { readonly name: string; readonly binary: string };
}

/** `{NAME}` in its text stands for an argument, `{NAME|TEXT}` for one that may be absent. */
export type TouchTemplate = Readonly<Record<string, string>>;

/** A folder with a `skill.toml`. */
export interface SkillPackage {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  /** Absolute, without links. */
  readonly folder: string;
  /** Of its files, if it may run only as it was loaded. */
  readonly digest?: string;
}

/** What a model gets of a tool. */
export interface ToolSchema {
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema;
}

/** A schema with what executes the tool beside it, for hosts and devices. The model never gets `evoclaw`. */
export interface ExtendedToolSchema extends ToolSchema {
  readonly evoclaw: {
    readonly binary: string;
    readonly timeout_ms: number;
    readonly sandbox: boolean;
    readonly permissions: readonly string[];
    readonly version: string;
    readonly skill: string;
  };
}

export function toolDefinitionToLlm({ name, description, parameters }: PackagedTool): ToolSchema {
  return { name, description, parameters };
}

/** The tools whose permissions are all held. */
export function filterToolsByCapabilities<T extends { readonly permissions?: readonly string[] }>(
  tools: readonly T[],
  capabilities: readonly string[],
): readonly T[] {
  return tools.filter(({ permissions = [] }) => permissions.every((name) => capabilities.includes(name)));
}

/** The schemas of the tools that an agent with these capabilities may use. */
export function generateToolSchemas(
  tools: readonly PackagedTool[],
  capabilities: readonly string[],
): readonly ExtendedToolSchema[] {
  return filterToolsByCapabilities(tools, capabilities).map((tool) => ({
    ...toolDefinitionToLlm(tool),
    evoclaw: {
      binary: tool.written.binary,
      timeout_ms: tool.timeoutMs,
      sandbox: tool.sandboxing !== 'none',
      permissions: tool.permissions,
      version: tool.version,
      skill: tool.package.name,
    },
  }));
}
