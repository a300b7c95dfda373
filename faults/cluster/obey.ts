/** The program's side of `Member`: it has loaded, then opens, then closes, each when it is told. */

export function obey(open: () => Promise<{ close(): Promise<void> }>): void {
  let opened: { close(): Promise<void> } | null = null
  const orphaned = () => process.exit(1)
  process.on('disconnect', orphaned)
  process.on('message', async (order) => {
    if (order === 'open') {
      opened = await open()
      process.send?.('opened')
    } else {
      await opened?.close()
      // It ends by itself when nothing holds it.
      process.off('disconnect', orphaned)
      process.disconnect()
    }
  })
  process.send?.('loaded')
}
