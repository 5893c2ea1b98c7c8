import { activateSkills, skillText, type Skill } from '@treadle/core/skills';
import type { McpOptions } from '@treadle/server';

/**
 * Skills for MCP clients: those that the user may activate are prompts, and all that are not disabled are resources. The client
 * decides which tools its model has, so nothing is narrowed there.
 */
export function skillRegistry(skills: readonly Skill[]): Pick<McpOptions, 'register'> {
  if (skills.length === 0) return {};
  const register: McpOptions['register'] = ({ registerPrompt, registerResource }) => {
    for (const skill of skills.filter(({ status }) => status !== 'disabled')) {
      const { name, description, invocation } = skill;
      const uri = `treadle://skills/${name}`;
      registerResource(name, uri, { description, mimeType: 'text/markdown' }, () => ({
        contents: [{ uri, mimeType: 'text/markdown', text: skillText(skill) }],
      }));
      if (invocation === 'model') continue;
      registerPrompt(name, { description }, () => {
        const activation = activateSkills(skills, [name], { by: 'user' });
        const text = activation.type === 'activated' ? activation.text : activation.reason;
        return { messages: [{ role: 'user', content: { type: 'text', text } }] };
      });
    }
  };
  return { register };
}
