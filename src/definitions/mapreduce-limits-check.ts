/** Advice on the limits of a map-reduce: those that cannot do what they were written for. Warnings alone. */
import { formatDuration } from '../core/duration.ts'
import type { CommandLimit } from './mapreduce-limits.ts'
import { effectiveLimits, stepsMs } from './mapreduce-limits.ts'
import type { MapreduceModel } from './mapreduce-model.ts'
import type { Places } from './places.ts'

export function checkMapreduceLimits(model: MapreduceModel, places: Places): void {
  const { map } = model
  const config = places.root.at('map').at('timeoutConfig')
  const timeouts = config.at('commandTimeouts')
  const { commands } = effectiveLimits(model)
  const inMap = commands.filter(({ phase, handler }) => phase === 'map' && handler === null)

  for (const key of Object.keys(map.commandTimeouts)) {
    const index = /_(\d+)$/.exec(key)?.[1]
    if (index === undefined || inMap.some((command) => `${command.type}_${command.index}` === key)) continue
    const there = map.template[Number(index)]
    const found = there ? `command ${index} is ${there.type}` : `there are ${map.template.length} commands`
    timeouts.child(key).warning('no_effect', `'${key}' matches no command: ${found}`, {
      suggestion: 'The number is the place in agent_template, from 0, whatever the types.',
      atKey: true,
    })
  }
  if (map.policy === 'per_agent' && Object.keys(map.commandTimeouts).length > 0) {
    const message = 'is not applied: the policy is per_agent'
    timeouts.warning('no_effect', message, {
      suggestion: 'Set timeout_policy: hybrid or per_command.',
      atKey: true,
    })
  }
  if (map.policy === 'per_command' && map.agentTimeoutMs !== null) {
    const message = 'the limit of the agent is not applied: the policy is per_command'
    agentField(places).warning('no_effect', message, { suggestion: 'Set timeout_policy: hybrid for both.' })
  }
  if (map.policy === 'hybrid' && map.agentTimeoutMs !== null)
    checkHybrid(model, map.agentTimeoutMs, inMap, places)
  if (map.escalation && map.action !== 'retry') {
    config.at('escalation').warning('no_effect', `has no effect: the action is ${map.action}`, {
      suggestion: 'Set timeout_action: retry.',
      atKey: true,
    })
  }
}

function checkHybrid(
  model: MapreduceModel,
  agentMs: number,
  commands: readonly CommandLimit[],
  places: Places,
): void {
  const agent = formatDuration(agentMs)
  for (const { index, limit, type } of commands) {
    // Nobody wrote a default: that the agent has less than it is what was meant.
    if (limit.ms === null || limit.ms <= agentMs || limit.source === 'default') continue
    const key = /^command_timeouts\["(.*)"\]$/.exec(limit.source)?.[1]
    const field =
      key === undefined
        ? places.of(model.map.template[index]!).at('timeout')
        : places.root.at('map').at('timeoutConfig').at('commandTimeouts').child(key)
    const message = `the limit of ${type} commands, ${formatDuration(limit.ms)}, never fires: the agent has ${agent}`
    field.warning(
      'cannot_fit',
      key === undefined ? message.replace(`${type} commands`, `command ${index}`) : message,
    )
  }
  const sumMs = stepsMs(model.map, 'map', model.map.template)
  if (commands.length === 0 || sumMs === null || sumMs >= agentMs) return
  const message = `the limit of the agent, ${agent}, never fires: its commands have ${formatDuration(sumMs)} together`
  agentField(places).warning('cannot_fit', message)
}

/** Where it is written: on the map, or in `timeout_config`. */
function agentField(places: Places) {
  const map = places.root.at('map')
  const config = map.at('timeoutConfig')
  const keys = ['agentTimeoutSecs', 'agentTimeout', 'agentTimeoutMs', 'agentTimeoutSeconds']
  for (const parent of [map, config]) {
    for (const key of keys) if (parent.at(key).value !== undefined) return parent.at(key)
  }
  return map
}
