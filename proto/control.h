/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The control protocol of tmemd, version 1: names and numbers. Its prose is
 * docs/control-protocol.md.
 *
 * One Unix stream socket. A request is one JSON object on one line, an answer is one JSON object
 * on one line; answers come in the order of the requests of that connection.
 */
#ifndef TMEM_CONTROL_H
#define TMEM_CONTROL_H

#define TMEM_CONTROL_VERSION 1
#define TMEM_CONTROL_SOCKET "/run/tmem/control.sock"

/* Bytes of one request with its newline. Longer: "too-large", and the connection ends. */
#define TMEM_CONTROL_MAX_REQUEST (64 * 1024)
/* Seconds that a begun request may take to arrive, and an answer to be taken. */
#define TMEM_CONTROL_TIMEOUT_S 10
/* Seconds that a connection may stay idle. */
#define TMEM_CONTROL_IDLE_S 300
/* Connections at a time; one more is told "busy" and closed. */
#define TMEM_CONTROL_MAX_CONNECTIONS 64
/* Long commands (reclaim, flush, domain...) under way at a time; one more is told "busy". */
#define TMEM_CONTROL_MAX_JOBS 8
/* Milliseconds that a reclaim may be asked to last, and what it lasts when nothing is said. */
#define TMEM_CONTROL_MAX_RECLAIM_MS (3600 * 1000)
#define TMEM_CONTROL_RECLAIM_MS (30 * 1000)
/* The same for a device that a domain is to get, or to give back. */
#define TMEM_CONTROL_DOMAIN_MS (10 * 1000)

/* Keys of a request that every command has. */
#define TMEM_KEY_COMMAND "command" /* string, needed */
#define TMEM_KEY_ID "id"	   /* anything; comes back in the answer */

/* Keys of an answer. */
#define TMEM_KEY_OK "ok"	   /* true or false */
#define TMEM_KEY_RESULT "result"   /* object, when ok */
#define TMEM_KEY_ERROR "error"	   /* object, when not ok, with these two: */
#define TMEM_KEY_CODE "code"	   /* one of the codes below */
#define TMEM_KEY_MESSAGE "message" /* a sentence for a person */

/* Error codes. */
#define TMEM_ERR_BAD_REQUEST "bad-request" /* not JSON, a key missing, unknown or of wrong type */
#define TMEM_ERR_UNKNOWN_COMMAND "unknown-command"
#define TMEM_ERR_TOO_LARGE "too-large"
#define TMEM_ERR_TIMEOUT "timeout"	    /* a begun request did not arrive in time */
#define TMEM_ERR_DENIED "denied"	    /* the peer may not speak here */
#define TMEM_ERR_BUSY "busy"		    /* too many connections or long commands */
#define TMEM_ERR_NO_CLIENT "no-such-client" /* nor disk */
#define TMEM_ERR_REFUSED "refused"	    /* understood, but the values are not possible now */

/* Commands. */
#define TMEM_CMD_LIST "list"
#define TMEM_CMD_STAT "stat"
#define TMEM_CMD_METRICS "metrics"
#define TMEM_CMD_SET "set"
#define TMEM_CMD_FREEZE "freeze"
#define TMEM_CMD_THAW "thaw"
#define TMEM_CMD_FREEABLE "freeable"
#define TMEM_CMD_RECLAIM "reclaim"
#define TMEM_CMD_FLUSH "flush"
#define TMEM_CMD_SHARED_AUTH "shared-auth"
#define TMEM_CMD_VERSION "version"
#define TMEM_CMD_SAVE "save"	   /* see "Streams" below */
#define TMEM_CMD_RESTORE "restore" /* likewise */
#define TMEM_CMD_RESTORE_DISCARD "restore-discard"
#define TMEM_CMD_DOMAIN "domain"
#define TMEM_CMD_DOMAIN_ATTACH "domain-attach"
#define TMEM_CMD_DOMAIN_DETACH "domain-detach"
#define TMEM_CMD_DISK_CREATE "disk-create"
#define TMEM_CMD_DISK_LIST "disk-list"
#define TMEM_CMD_DISK_RESIZE "disk-resize"
#define TMEM_CMD_DISK_REMOVE "disk-remove"
#define TMEM_CMD_PEER_LIST "peer-list"
#define TMEM_CMD_PEER_DRAIN "peer-drain"
#define TMEM_CMD_PEER_ALLOW "peer-allow"
#define TMEM_CMD_PEER_DENY "peer-deny"

/* Keys of requests. */
#define TMEM_KEY_CLIENT "client"     /* string: name of a client */
#define TMEM_KEY_ALL "all"	     /* true: the whole service */
#define TMEM_KEY_MINIMUM "minimum"   /* integer: physical bytes */
#define TMEM_KEY_MAXIMUM "maximum"   /* integer: physical bytes, 0 none */
#define TMEM_KEY_WEIGHT "weight"     /* integer: 1..10000 */
#define TMEM_KEY_POOL_MAX "pool_max" /* integer: physical bytes */
#define TMEM_KEY_BYTES "bytes"	     /* integer: physical bytes */
#define TMEM_KEY_TIMEOUT_MS "timeout_ms"
#define TMEM_KEY_UUID "uuid"   /* string: of a shared pool */
#define TMEM_KEY_ALLOW "allow" /* true or false */

#define TMEM_KEY_LIVE "live" /* true: the guest runs while it is saved */

/* Keys of requests about disks; "name" is the disk's. The results have them too. */
#define TMEM_KEY_SIZE "size"	 /* integer: bytes that the guest sees, a multiple of 4096 */
#define TMEM_KEY_QUEUES "queues" /* integer: 1..8 */
#define TMEM_KEY_MODE "mode"	 /* integer: permission bits of the socket, 432 is 0660 */
#define TMEM_KEY_UID "uid"	 /* integer: owner of the socket; -1 as it is made */
#define TMEM_KEY_GID "gid"
#define TMEM_KEY_OVERCOMMIT "overcommit" /* true: it need not fit when nothing compresses */
#define TMEM_KEY_FORCE "force"		 /* true: also under a front end */

/* Milliseconds that a drain may be given, and what it has when nothing is said. */
#define TMEM_CONTROL_MAX_DRAIN_MS (24 * 3600 * 1000)
#define TMEM_CONTROL_DRAIN_MS (60 * 1000)

/* Keys of results about peers; "name" is the peer's. */
#define TMEM_KEY_PEERS "peers"	   /* array of objects: those that lend to this host */
#define TMEM_KEY_LENDING "lending" /* object: what this host lends; null: nothing */
#define TMEM_KEY_HOST "host"
#define TMEM_KEY_PORT "port"
#define TMEM_KEY_DRAINING "draining"
#define TMEM_KEY_LEAVING "leaving"	   /* it wants its memory back */
#define TMEM_KEY_SPARE_BYTES "spare_bytes" /* physical, that it would take now */
#define TMEM_KEY_BLOBS "blobs"		   /* pages of this host that it holds, as it says */
#define TMEM_KEY_LATENCY_US "latency_us"
#define TMEM_KEY_WHY "why"		   /* it is not up; null when it is, or not known */
#define TMEM_KEY_GET_LATENCY "get_latency" /* array: of bucket i, less than 2^(i+1) us */
#define TMEM_KEY_PUT_LATENCY "put_latency"
#define TMEM_KEY_LEND_BYTES "lend_bytes" /* physical, at most */
#define TMEM_KEY_LENT_BYTES "lent_bytes" /* physical, now */

/* Keys of results. Bytes say which kind they are: logical (pages x 4096) or physical. */
#define TMEM_KEY_CLIENTS "clients" /* array of objects */
#define TMEM_KEY_SERVICE "service" /* object */
#define TMEM_KEY_NAME "name"
#define TMEM_KEY_KIND "kind"   /* one of the kinds below */
#define TMEM_KEY_STATE "state" /* one of the states below */
#define TMEM_KEY_FROZEN "frozen"
#define TMEM_KEY_POLLING "polling"
#define TMEM_KEY_PID "pid" /* of the region's owner, or null; of the service: its own */
/* Of a client that is a Xen domain: its number, or null. In a request: number, name or UUID. */
#define TMEM_KEY_DOMAIN "domain"
#define TMEM_KEY_DOMAINS "domains"	 /* array of objects */
#define TMEM_KEY_CONFIGURED "configured" /* name or UUID that the client is configured for */
#define TMEM_KEY_DEVICE "device"	 /* one of the devices below */
#define TMEM_KEY_CHANGED "changed"	 /* false: it was so already */
#define TMEM_KEY_RINGS "rings"
#define TMEM_KEY_MAX_RINGS "max_rings" /* that the configuration allows: doorbells each way */
#define TMEM_KEY_ENTRIES "entries"
#define TMEM_KEY_REGION_BYTES "region_bytes"
#define TMEM_KEY_SOCKET "socket"
#define TMEM_KEY_PAGES_EPHEMERAL "pages_ephemeral"
#define TMEM_KEY_PAGES_PERSISTENT "pages_persistent"
#define TMEM_KEY_PAGES_AWAY "pages_away" /* of the persistent ones: at peers */
#define TMEM_KEY_LOGICAL_BYTES "logical_bytes"
#define TMEM_KEY_PHYSICAL_BYTES "physical_bytes"
#define TMEM_KEY_RATIO "ratio"	   /* logical by physical bytes of what is here, or null */
#define TMEM_KEY_REFUSED "refused" /* puts refused, for whatever reason */
#define TMEM_KEY_MINIMUM_BYTES "minimum_bytes" /* physical */
#define TMEM_KEY_MAXIMUM_BYTES "maximum_bytes" /* physical; 0 none */
#define TMEM_KEY_COUNTERS "counters"	       /* object: every counter by its name */
#define TMEM_KEY_POOLS "pools"		       /* array of objects */
#define TMEM_KEY_FLAGS "flags"		       /* of a pool: array of words */
#define TMEM_KEY_PAGES "pages"
#define TMEM_KEY_MEMBERS "members"
#define TMEM_KEY_POOL_BYTES "pool_bytes"	 /* physical, taken from the host */
#define TMEM_KEY_POOL_MAX_BYTES "pool_max_bytes" /* physical */
#define TMEM_KEY_VERSION "version"
#define TMEM_KEY_PROTOCOL "protocol"
#define TMEM_KEY_ABI_VERSION "abi_version"
#define TMEM_KEY_ARENA "arena"
#define TMEM_KEY_ARENA_FORMAT "arena_format"
#define TMEM_KEY_ARENA_BYTES "arena_bytes" /* that the arena could ever hold */
#define TMEM_KEY_HUGE_PAGES "huge_pages"
#define TMEM_KEY_HOST_RESERVE_BYTES "host_reserve_bytes" /* of MemAvailable; 0 none */
#define TMEM_KEY_FD_STORE "fd_store"		   /* most that the manager keeps; null unknown */
#define TMEM_KEY_FREEABLE_BYTES "freeable_bytes"   /* physical */
#define TMEM_KEY_RECLAIMED_BYTES "reclaimed_bytes" /* physical */
#define TMEM_KEY_COMPLETE "complete"		   /* all that was asked for was done */
#define TMEM_KEY_STREAM "stream"		   /* object: what a stream's head says */
#define TMEM_KEY_STREAM_BYTES "stream_bytes"
#define TMEM_KEY_PASSES "passes"
#define TMEM_KEY_GO "go"     /* true: what follows is a stream */
#define TMEM_KEY_TEXT "text" /* metrics: Prometheus text format */
/* Physical bytes when nothing compresses: of a disk; of all disks, with the clients' minimums. */
#define TMEM_KEY_EXPOSURE_BYTES "exposure_bytes"
#define TMEM_KEY_DISKS "disks"	   /* array of objects */
#define TMEM_KEY_DISK "disk"	   /* object */
#define TMEM_KEY_ORIGIN "origin"   /* of a disk: one of the origins below */
#define TMEM_KEY_CREATED "created" /* false: it was there already */
#define TMEM_KEY_QUEUES_RUNNING "queues_running"

/* Kinds of a client. */
#define TMEM_KIND_CLIENT "client" /* a VM with rings, or a process */
#define TMEM_KIND_DISK "disk"

/* Origins of a disk. */
#define TMEM_ORIGIN_CONFIGURATION "configuration"
#define TMEM_ORIGIN_COMMAND "command"
#define TMEM_ORIGIN_NONE "none" /* the arena has it, nobody asks for it any more */

/* States of a client. */
#define TMEM_STATE_CONNECTED "connected" /* its guest's rings, or its front end, are served */
#define TMEM_STATE_ATTACHED "attached"	 /* its VM lives, the guest has not said hello */
#define TMEM_STATE_WAITING "waiting"	 /* no VM */
#define TMEM_STATE_RESTORED "restored"	 /* pages were brought here and wait for their guest */
#define TMEM_STATE_UNCONFIGURED "unconfigured" /* in the arena, and nobody serves it */

/* The device of a Xen domain. */
#define TMEM_DEVICE_ABSENT "absent"   /* no such domain now */
#define TMEM_DEVICE_OFFERED "offered" /* it is in xenstore, and the guest may use it */
#define TMEM_DEVICE_LEAVING "leaving" /* the guest is to give it back */
#define TMEM_DEVICE_LEFT "left"	      /* taken away, by domain-detach or in xenstore */

/*
 * Streams. Behind the request of TMEM_CMD_SAVE and TMEM_CMD_RESTORE the service answers with one
 * line: an error as usual, or an object with "go". Then the connection carries chunks: a number of
 * bytes (32 bits, little-endian), at most TMEM_CHUNK_MAX, and so many bytes; 0 ends the stream.
 * Then comes the answer as usual, and the connection ends. Whoever gives up closes.
 *
 * Of a save the chunks come from the service, and between them, after each pass over the pages of a
 * guest that runs, TMEM_CHUNK_PASS and the number of pages (64 bits) that the pass wrote. With
 * "live" the service makes passes until it is sent one byte, whatever it is: the guest is paused
 * now; or until the guest has ended.
 */
#define TMEM_CHUNK_MAX (1u << 20)
#define TMEM_CHUNK_PASS 0xffffffffu
/* Seconds that a chunk may take to be taken. */
#define TMEM_CHUNK_TIMEOUT_S 120

#endif
