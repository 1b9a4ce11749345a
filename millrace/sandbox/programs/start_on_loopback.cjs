// Has a Node program listen on 127.0.0.1 and end with its parent: `node --require start_on_loopback.cjs`, by NODE_OPTIONS.
//
// For kinesis-mock, which LocalStack starts: it listens on every interface, in a session of its own that a kill -9 of
// LocalStack does not reach. No program is told a host otherwise, and so no client is turned away.
'use strict'
const net = require('net')

const everywhere = [undefined, null, '', '0.0.0.0', '::']
const listen = net.Server.prototype.listen

net.Server.prototype.listen = function (first, ...others) {
  if (first !== null && typeof first === 'object') {
    const elsewhere = first.path !== undefined || first.fd !== undefined || first._handle || first.handle
    if (!elsewhere && everywhere.includes(first.host)) first = {...first, host: '127.0.0.1'}
    return listen.call(this, first, ...others)
  }
  if (typeof first === 'string' && !/^\d+$/.test(first)) return listen.call(this, first, ...others) // a path
  const [host, ...rest] = typeof others[0] === 'string' || others[0] == null ? others : [undefined, ...others]
  return listen.call(this, first, everywhere.includes(host) ? '127.0.0.1' : host, ...rest)
}

const parent = process.ppid
setInterval(() => process.ppid === parent || process.exit(1), 1000).unref()
