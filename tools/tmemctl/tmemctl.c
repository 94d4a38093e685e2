// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemctl: looks at and steers a running tmemd by its control socket.
 *
 * One table of commands; each says its own usage. The words follow `xl tmem-*`.
 */
#include "config.h"

#include "tools/tmemctl/tmemctl.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/control.h"
#include "proto/size.h"

struct command {
	const char *name;
	const char *args;
	const char *help;
	int min_args, max_args;
	const char *options; /* letters of the options that it knows */
	int (*run)(const struct ctl *ctl);
};

static json_t *request_of(const char *command)
{
	return json_pack("{s:s}", TMEM_KEY_COMMAND, command);
}

int call_and_print(const struct ctl *ctl, json_t *request, void (*print)(json_t *result))
{
	json_t *result;
	int r = ctl_call(ctl, request, CTL_PATIENCE_S, &result);

	if (r)
		return r;
	if (ctl->json)
		print_json(result);
	else if (print)
		print(result);
	json_decref(result);
	return CTL_OK;
}

int usage_error(const char *message, const char *about)
{
	fprintf(stderr, "tmemctl: %s: %s\n", about, message);
	return CTL_USAGE;
}

/* ---- Commands ------------------------------------------------------------------------------- */

static int run_list(const struct ctl *ctl)
{
	return call_and_print(ctl, request_of(TMEM_CMD_LIST), print_list);
}

static int run_stat(const struct ctl *ctl)
{
	json_t *request = request_of(TMEM_CMD_STAT);

	if (ctl->argc)
		json_object_set_new(request, TMEM_KEY_CLIENT, json_string(ctl->argv[0]));
	return call_and_print(ctl, request, print_stat);
}

static void print_metrics(json_t *result)
{
	fputs(json_string_value(json_object_get(result, TMEM_KEY_TEXT)), stdout);
}

static int run_metrics(const struct ctl *ctl)
{
	return call_and_print(ctl, request_of(TMEM_CMD_METRICS), print_metrics);
}

static void print_version(json_t *result)
{
	printf("tmemd %s, control protocol %.0f, guest ABI %.0f\n",
	       json_string_value(json_object_get(result, TMEM_KEY_VERSION)),
	       number_of(result, TMEM_KEY_PROTOCOL), number_of(result, TMEM_KEY_ABI_VERSION));
}

static int run_version(const struct ctl *ctl)
{
	return call_and_print(ctl, request_of(TMEM_CMD_VERSION), print_version);
}

/* Puts "key=value" into the request. */
static int set_value(json_t *request, const char *arg)
{
	static const char *const keys[] = {TMEM_KEY_MAXIMUM, TMEM_KEY_MINIMUM, TMEM_KEY_WEIGHT,
					   TMEM_KEY_POOL_MAX};
	const char *eq = strchr(arg, '=');
	uint64_t value = 0;

	for (size_t i = 0; eq && i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (strlen(keys[i]) != (size_t)(eq - arg) ||
		    strncmp(keys[i], arg, (size_t)(eq - arg)))
			continue;
		if (json_object_get(request, keys[i]))
			return usage_error("given twice", arg);
		if ((i || strcmp(eq + 1, "none")) && tmem_size_parse(eq + 1, &value))
			return usage_error(
				"the value must be " TMEM_SIZE_FORM " (maximum: or none)", arg);
		json_object_set_new(request, keys[i], json_integer((json_int_t)value));
		return CTL_OK;
	}
	return usage_error(
		"allowed are maximum=, minimum= and weight= behind a client, or pool_max=", arg);
}

static int run_set(const struct ctl *ctl)
{
	json_t *request = request_of(TMEM_CMD_SET);
	bool client = !strchr(ctl->argv[0], '=');
	int r = CTL_OK;

	if (client)
		json_object_set_new(request, TMEM_KEY_CLIENT, json_string(ctl->argv[0]));
	if (client && ctl->argc == 1)
		r = usage_error("say what to set: maximum=, minimum= or weight=", ctl->argv[0]);
	for (int i = client; i < ctl->argc && !r; i++)
		r = set_value(request, ctl->argv[i]);
	/* The command, and the client or pool_max; or more. */
	if (!r && (client ? json_object_get(request, TMEM_KEY_POOL_MAX) != NULL
			  : json_object_size(request) != 2 ||
				    !json_object_get(request, TMEM_KEY_POOL_MAX)))
		r = usage_error(
			"maximum=, minimum= and weight= need a client before them; pool_max= "
			"stands alone",
			ctl->argv[0]);
	if (r) {
		json_decref(request);
		return r;
	}
	return call_and_print(ctl, request, NULL);
}

/* A command for one client or, with --all, for the whole service. */
static int client_or_all(const struct ctl *ctl, const char *command, void (*print)(json_t *result))
{
	json_t *request;

	if (ctl->all == (ctl->argc == 1))
		return usage_error("say either a client or --all", command);
	request = request_of(command);
	if (ctl->all)
		json_object_set_new(request, TMEM_KEY_ALL, json_true());
	else
		json_object_set_new(request, TMEM_KEY_CLIENT, json_string(ctl->argv[0]));
	return call_and_print(ctl, request, print);
}

static int run_freeze(const struct ctl *ctl)
{
	return client_or_all(ctl, TMEM_CMD_FREEZE, NULL);
}

static int run_thaw(const struct ctl *ctl)
{
	return client_or_all(ctl, TMEM_CMD_THAW, NULL);
}

static void print_flushed(json_t *result)
{
	printf("%.0f ephemeral pages dropped\n", number_of(result, TMEM_KEY_PAGES));
}

static int run_flush(const struct ctl *ctl)
{
	return client_or_all(ctl, TMEM_CMD_FLUSH, print_flushed);
}

static void print_freeable(json_t *result)
{
	double bytes = number_of(result, TMEM_KEY_FREEABLE_BYTES);
	char text[16];

	print_size(bytes, text);
	printf("%s physical (%.0f bytes) could be given to the host\n", text, bytes);
}

static int run_freeable(const struct ctl *ctl)
{
	return call_and_print(ctl, request_of(TMEM_CMD_FREEABLE), print_freeable);
}

static int run_reclaim(const struct ctl *ctl)
{
	json_t *request, *result;
	char done[16], wanted[16];
	double seconds = ctl->timeout;
	uint64_t bytes;
	bool complete;
	int r;

	if (tmem_size_parse(ctl->argv[0], &bytes) || !bytes)
		return usage_error("the size must be " TMEM_SIZE_FORM ", above 0", ctl->argv[0]);
	request = request_of(TMEM_CMD_RECLAIM);
	json_object_set_new(request, TMEM_KEY_BYTES, json_integer((json_int_t)bytes));
	if (seconds >= 0)
		json_object_set_new(request, TMEM_KEY_TIMEOUT_MS,
				    json_integer((json_int_t)(seconds * 1000)));
	else
		seconds = TMEM_CONTROL_RECLAIM_MS / 1000;
	r = ctl_call(ctl, request, (int)seconds + CTL_PATIENCE_S, &result);
	if (r)
		return r;
	complete = json_is_true(json_object_get(result, TMEM_KEY_COMPLETE));
	if (ctl->json) {
		print_json(result);
	} else {
		print_size(number_of(result, TMEM_KEY_RECLAIMED_BYTES), done);
		print_size((double)bytes, wanted);
		printf("%s physical given back to the host, of %s asked for\n", done, wanted);
	}
	json_decref(result);
	return complete ? CTL_OK : CTL_REFUSED;
}

static int run_shared_auth(const struct ctl *ctl)
{
	json_t *request;
	bool allow = !strcmp(ctl->argv[2], "allow");

	if (!allow && strcmp(ctl->argv[2], "deny"))
		return usage_error("the last word must be allow or deny", ctl->argv[2]);
	request = request_of(TMEM_CMD_SHARED_AUTH);
	json_object_set_new(request, TMEM_KEY_CLIENT, json_string(ctl->argv[0]));
	json_object_set_new(request, TMEM_KEY_UUID, json_string(ctl->argv[1]));
	json_object_set_new(request, TMEM_KEY_ALLOW, json_boolean(allow));
	return call_and_print(ctl, request, NULL);
}

/* ---- The table ------------------------------------------------------------------------------ */

static const struct command commands[] = {
	{"list", "",
	 "The clients: state, pages, logical and physical bytes, ratio, physical maximum, refused\n"
	 "puts, and the process that owns the region.\n",
	 0, 0, "j", run_list},
	{"stat", "[CLIENT]", "All counters, of the service and of all clients or of one.\n", 0, 1,
	 "j", run_stat},
	{"metrics", "",
	 "All counters as Prometheus text, for node_exporter's textfile collector.\n", 0, 0, "j",
	 run_metrics},
	{"set", "CLIENT {maximum=SIZE|minimum=SIZE|weight=N}... | pool_max=SIZE",
	 "Sets limits until the next restart or reload. Sizes are physical bytes, with K, M, G or\n"
	 "T; maximum=none lifts the maximum. An accepted page is never given up for a limit.\n",
	 1, 4, "", run_set},
	{"freeze", "CLIENT | --all",
	 "Refuses new puts of a client, or of all; gets and flushes go on. A client that was "
	 "frozen\n"
	 "by its name stays frozen when --all is thawed.\n",
	 0, 1, "a", run_freeze},
	{"thaw", "CLIENT | --all", "Ends a freeze.\n", 0, 1, "a", run_thaw},
	{"freeable", "", "Physical bytes that `reclaim` could give to the host.\n", 0, 0, "j",
	 run_freeable},
	{"reclaim", "SIZE [--timeout SECONDS]",
	 "Gives physical memory back to the host, in whole chunks of 2 MiB: drops ephemeral pages\n"
	 "and compacts. Ends when done or after the time-out (default 30 seconds); exit status 1\n"
	 "when it gave back less. To keep the pool from growing again, lower pool_max.\n",
	 1, 1, "jt", run_reclaim},
	{"flush", "CLIENT | --all", "Drops ephemeral pages. Persistent pages stay.\n", 0, 1, "ja",
	 run_flush},
	{"shared-auth", "CLIENT UUID {allow|deny}",
	 "Lets a client create or join the shared pool of that UUID, or no longer.\n", 3, 3, "",
	 run_shared_auth},
	{"save", "VM FILE|- [--live [--pause COMMAND]]",
	 "Saves the persistent pages of a client or disk, so that its machine can go on "
	 "elsewhere.\n"
	 "Without --live its guest must be paused. With it, pages are saved while the guest runs, "
	 "and\n"
	 "the last ones when COMMAND (`virsh suspend VM`), which is run then, has paused it, or "
	 "when\n"
	 "the machine has ended. On a failure there is no FILE.\n",
	 2, 2, "jlu", run_save},
	{"restore",
	 "VM FILE|- [an option of disk create...]\n"
	 "          | VM --discard",
	 "Brings back what `save` has saved, all of it or nothing, before the machine goes on. "
	 "The\n"
	 "client must be configured and empty; a disk is made when it is not there. --discard "
	 "drops\n"
	 "what was restored and no guest has claimed.\n",
	 1, 2, "jDod", run_restore},
	{"doctor", "[--guest] [--root DIR]",
	 "What is wrong or wasteful on this host, each with its remedy; exit status 1 when it is\n"
	 "more than a note. With --guest: in this guest, where no service is asked. --root: read\n"
	 "/proc and /sys below that directory, e.g. copies of another machine's.\n",
	 0, 0, "jgr", run_doctor},
	{"domain", "[DOMAIN]",
	 "Domains of Xen: their clients and devices. With DOMAIN, a number, name or UUID: the "
	 "name\n"
	 "of its client.\n",
	 0, 1, "j", run_domain},
	{"version", "", "Versions of the service and its protocols.\n", 0, 0, "j", run_version},
	{"disk create",
	 "NAME --size SIZE [--queues N] [--socket PATH] [--owner USER] [--group GROUP]\n"
	 "      [--mode MODE] [--minimum SIZE] [--maximum SIZE] [--weight N] [--overcommit]",
	 "Makes a disk for a guest's swap, which needs no software of ours (vhost-user-blk), and\n"
	 "says how QEMU gets it. It is there until it is removed, also after a restart of the\n"
	 "service. When all disks could be more than the pool, it is refused, but for "
	 "--overcommit.\n"
	 "Behind these words --socket is the disk's; the service's is -s, or stands before them.\n",
	 1, 1, "jDo", run_disk_create},
	{"disk list", "",
	 "The disks: state, logical size and pages, physical bytes now and at most, their sum\n"
	 "against pool_max, and the socket.\n",
	 0, 0, "j", run_disk_list},
	{"disk resize", "NAME SIZE",
	 "Makes a disk larger, also while a guest has it. None shrinks.\n", 2, 2, "j",
	 run_disk_resize},
	{"disk remove", "NAME [--force]",
	 "Removes a disk with all that is on it. While a front end (QEMU) is connected, or a\n"
	 "section of the configuration names it, it is refused, but for --force.\n",
	 1, 1, "jf", run_disk_remove},
	{"peer list", "",
	 "The hosts that lend memory to this one: state, pages there, what they would take, how "
	 "long\n"
	 "an answer takes; and what this host lends.\n",
	 0, 0, "j", run_peer_list},
	{"peer stat", "[NAME]",
	 "All counters and latencies of the peers, or of one, and of what this host lends.\n", 0, 1,
	 "j", run_peer_stat},
	{"peer drain", "NAME [--timeout SECONDS]",
	 "No new page goes to that host, and those that are there leave it within SECONDS (60): "
	 "to\n"
	 "other hosts, or home.\n",
	 1, 1, "t", run_peer_drain},
	{"peer allow", "NAME", "Undoes `drain` and `deny`; a host that borrows here may do so.\n",
	 1, 1, "", run_peer_allow},
	{"peer deny", "NAME",
	 "Does not speak with that host any more, neither to lend nor to borrow. Pages that are\n"
	 "there alone cannot be had until it is allowed again: drain it first.\n",
	 1, 1, "", run_peer_deny},
	{"attach",
	 "URI VM [--name NAME] [--config] [--live] [--force] [--print] [--required]\n"
	 "      [--size SIZE] [--queues N] [--socket PATH] [--owner USER] [--group GROUP]\n"
	 "      [--mode MODE] [--minimum SIZE] [--maximum SIZE] [--weight N] [--overcommit]\n"
	 "      | --nbd [--socket PATH] | --ring\n"
	 "         xl: DOMAIN [--timeout SECONDS | --print [--name CLIENT]]",
	 "Gives a virtual machine of libvirt (URI: qemu:///system), named by name or UUID, a disk\n"
	 "to swap on, and makes the disk when it is not there: NAME, by default tmem-VM. --nbd: a\n"
	 "disk served by tmem-nbd@NAME.service, for a machine whose memory is not shared. --ring:\n"
	 "the device of the guest's module, for the client NAME of tmemd, by default VM.\n"
	 "--config changes what is there at the next start, --live the running machine; without\n"
	 "both: a running machine live, one that is off at its next start. --print changes "
	 "nothing\n"
	 "and prints the XML. --required: the machine must not start without (see the hook).\n"
	 "--force: also to a running machine whose libvirt would not connect its disk again. "
	 "Attaching\n"
	 "twice changes nothing.\n"
	 "xl: a domain of Xen (number, name or UUID) whose client the configuration has gets its\n"
	 "device, also after it was taken away, and it is waited for (10 seconds): see xl create "
	 "-p.\n"
	 "--print: the section that the configuration needs.\n",
	 2, 2, "jfDovpqt", run_attach},
	{"detach",
	 "URI VM [--name NAME] [--nbd | --ring] [--config] [--live] [--force]\n"
	 "      [--remove-disk]\n"
	 "         xl: DOMAIN [--timeout SECONDS]",
	 "Takes out what `attach` put in; do swapoff in the guest first. A disk that still holds\n"
	 "something is only unplugged from a running machine with --force: `blkdiscard` in the\n"
	 "guest empties it. --remove-disk removes the disk from tmemd, too.\n"
	 "xl: takes the device away from a domain until it is attached again, or created anew, or "
	 "the\n"
	 "configuration is reloaded. A guest with pages keeps it: do swapoff in it first.\n",
	 2, 2, "jfvmt", run_detach},
};
#define NR_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void help(void)
{
	printf("Usage: tmemctl [--socket PATH] COMMAND [ARGUMENT]...\n"
	       "Looks at and steers tmemd, the transcendent-memory service of this host.\n\n");
	for (size_t i = 0; i < NR_COMMANDS; i++)
		printf("  %s%s%s\n", commands[i].name, *commands[i].args ? " " : "",
		       commands[i].args);
	printf("\n"
	       "  -s, --socket PATH  control socket (default " TMEM_CONTROL_SOCKET ")\n"
	       "  -j, --json         print the result as JSON\n"
	       "  -h, --help         this, or behind a command: about it\n"
	       "  -V, --version\n"
	       "\n"
	       "Exit status: 0 done, 1 refused by the service, 2 wrong usage, 3 no service "
	       "there.\n");
}

static void help_command(const struct command *command)
{
	printf("Usage: tmemctl %s%s%s%s\n%s", command->name, *command->args ? " " : "",
	       command->args, strchr(command->options, 'j') ? " [--json]" : "", command->help);
}

/* Of all commands that begin with that word. */
static int help_group(const char *word)
{
	size_t len = strlen(word);

	for (size_t i = 0; i < NR_COMMANDS; i++)
		if (!strncmp(commands[i].name, word, len) && commands[i].name[len] == ' ')
			help_command(&commands[i]);
	return CTL_OK;
}

/* Sets how many words of argv the command has. */
static const struct command *find_command(int argc, char **argv, int *words)
{
	for (size_t i = 0; i < NR_COMMANDS; i++) {
		const char *name = commands[i].name, *second = strchr(name, ' ');
		size_t len = second ? (size_t)(second - name) : strlen(name);

		*words = second ? 2 : 1;
		if (argc >= *words && strlen(argv[0]) == len && !strncmp(argv[0], name, len) &&
		    (!second || !strcmp(argv[1], second + 1)))
			return &commands[i];
	}
	return NULL;
}

static int bad_usage(const char *message, const char *about)
{
	fprintf(stderr, "tmemctl: %s: %s\nSee tmemctl --help.\n", about, message);
	return CTL_USAGE;
}

static int no_command(int argc, char **argv)
{
	if (!argc)
		return bad_usage("missing", "COMMAND");
	if (!strcmp(argv[0], "disk"))
		return bad_usage("say what: create, list, resize or remove", argv[0]);
	if (!strcmp(argv[0], "peer"))
		return bad_usage("say what: list, stat, drain, allow or deny", argv[0]);
	return bad_usage("no such command", argv[0]);
}

static bool has_disk_option(const struct ctl *ctl)
{
	for (int i = 0; i < DISK_NR_OPTIONS; i++)
		if (ctl->disk[i])
			return true;
	return false;
}

static bool has_machine_option(const struct ctl *ctl)
{
	return ctl->name || ctl->nbd || ctl->ring || ctl->config;
}

/* An option that the command does not know, or the wrong number of arguments. */
static int check_usage(const struct command *command, const struct ctl *ctl)
{
	const char *options = command->options;

	if ((ctl->json && !strchr(options, 'j')) || (ctl->all && !strchr(options, 'a')) ||
	    (ctl->timeout >= 0 && !strchr(options, 't')) || (ctl->guest && !strchr(options, 'g')) ||
	    (ctl->root && !strchr(options, 'r')) || (ctl->force && !strchr(options, 'f')) ||
	    (ctl->overcommit && !strchr(options, 'o')) ||
	    (has_disk_option(ctl) && !strchr(options, 'D')) ||
	    (has_machine_option(ctl) && !strchr(options, 'v')) ||
	    (ctl->live && !strpbrk(options, "vl")) || (ctl->pause && !strchr(options, 'u')) ||
	    (ctl->discard && !strchr(options, 'd')) || (ctl->print && !strchr(options, 'p')) ||
	    (ctl->required && !strchr(options, 'q')) || (ctl->remove_disk && !strchr(options, 'm')))
		return bad_usage("an option that this command does not have", command->name);
	if (ctl->argc < command->min_args)
		return bad_usage("an argument is missing", command->name);
	if (ctl->argc > command->max_args)
		return bad_usage("an argument too many", ctl->argv[command->max_args]);
	return CTL_OK;
}

static bool parse_seconds(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	return end != text && !*end && *seconds >= 0 &&
	       *seconds <= TMEM_CONTROL_MAX_RECLAIM_MS / 1000;
}

/* ---- The command line ----------------------------------------------------------------------- */

/* Long options without a letter; OPTION_DISK and behind it: enum disk_option. */
enum {
	OPTION_SOCKET = 256,
	OPTION_OVERCOMMIT,
	OPTION_FORCE,
	OPTION_NAME,
	OPTION_NBD,
	OPTION_RING,
	OPTION_CONFIG,
	OPTION_LIVE,
	OPTION_PRINT,
	OPTION_REQUIRED,
	OPTION_REMOVE_DISK,
	OPTION_PAUSE,
	OPTION_DISCARD,
	OPTION_DISK
};

static const struct option longs[] = {
	{"socket", required_argument, NULL, OPTION_SOCKET},
	{"json", no_argument, NULL, 'j'},
	{"all", no_argument, NULL, 'a'},
	{"timeout", required_argument, NULL, 't'},
	{"guest", no_argument, NULL, 'g'},
	{"root", required_argument, NULL, 'r'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{"overcommit", no_argument, NULL, OPTION_OVERCOMMIT},
	{"force", no_argument, NULL, OPTION_FORCE},
	{"name", required_argument, NULL, OPTION_NAME},
	{"nbd", no_argument, NULL, OPTION_NBD},
	{"ring", no_argument, NULL, OPTION_RING},
	{"config", no_argument, NULL, OPTION_CONFIG},
	{"live", no_argument, NULL, OPTION_LIVE},
	{"print", no_argument, NULL, OPTION_PRINT},
	{"required", no_argument, NULL, OPTION_REQUIRED},
	{"pause", required_argument, NULL, OPTION_PAUSE},
	{"discard", no_argument, NULL, OPTION_DISCARD},
	{"remove-disk", no_argument, NULL, OPTION_REMOVE_DISK},
	{"size", required_argument, NULL, OPTION_DISK + DISK_SIZE},
	{"queues", required_argument, NULL, OPTION_DISK + DISK_QUEUES},
	{"mode", required_argument, NULL, OPTION_DISK + DISK_MODE},
	{"owner", required_argument, NULL, OPTION_DISK + DISK_OWNER},
	{"group", required_argument, NULL, OPTION_DISK + DISK_GROUP},
	{"minimum", required_argument, NULL, OPTION_DISK + DISK_MINIMUM},
	{"maximum", required_argument, NULL, OPTION_DISK + DISK_MAXIMUM},
	{"weight", required_argument, NULL, OPTION_DISK + DISK_WEIGHT},
	{0},
};

struct line {
	struct ctl ctl;
	bool help, version;
	char **words; /* what is no option, in order */
	int nr;
};

/* An option that says only that it is there. False: it is another. */
static bool take_flag(struct ctl *ctl, int option)
{
	const struct {
		int option;
		bool *flag;
	} flags[] = {
		{'j', &ctl->json},
		{'a', &ctl->all},
		{'g', &ctl->guest},
		{OPTION_OVERCOMMIT, &ctl->overcommit},
		{OPTION_FORCE, &ctl->force},
		{OPTION_NBD, &ctl->nbd},
		{OPTION_RING, &ctl->ring},
		{OPTION_CONFIG, &ctl->config},
		{OPTION_LIVE, &ctl->live},
		{OPTION_PRINT, &ctl->print},
		{OPTION_REQUIRED, &ctl->required},
		{OPTION_REMOVE_DISK, &ctl->remove_disk},
		{OPTION_DISCARD, &ctl->discard},
	};

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (flags[i].option == option)
			return *flags[i].flag = true;
	return false;
}

/* One option. CTL_OK or CTL_USAGE. */
static int take_option(struct line *line, int option)
{
	struct ctl *ctl = &line->ctl;
	int words;
	const struct command *command = find_command(line->nr, line->words, &words);

	if (take_flag(ctl, option))
		return CTL_OK;
	switch (option) {
	case OPTION_SOCKET:
		/* A disk has a socket of its own. */
		if (command && strchr(command->options, 'D'))
			ctl->disk[DISK_SOCKET] = optarg;
		else
			ctl->socket = optarg;
		return CTL_OK;
	case 's':
		ctl->socket = optarg;
		return CTL_OK;
	case 't':
		if (!parse_seconds(optarg, &ctl->timeout))
			return bad_usage("allowed are 0 to 3600 seconds", optarg);
		return CTL_OK;
	case OPTION_NAME:
		ctl->name = optarg;
		return CTL_OK;
	case OPTION_PAUSE:
		ctl->pause = optarg;
		return CTL_OK;
	case 'r':
		ctl->root = optarg;
		return CTL_OK;
	case 'h':
		line->help = true;
		return CTL_OK;
	case 'V':
		line->version = true;
		return CTL_OK;
	}
	if (option >= OPTION_DISK) {
		ctl->disk[option - OPTION_DISK] = optarg;
		return CTL_OK;
	}
	fputs("See tmemctl --help.\n", stderr);
	return CTL_USAGE;
}

/* Takes options and words apart, in their order; words are gathered at the front of argv. */
static int parse(int argc, char **argv, struct line *line)
{
	int c, r;

	line->words = argv + 1;
	while ((c = getopt_long(argc, argv, "-s:jat:hV", longs, NULL)) != -1) {
		if (c == 1) {
			line->words[line->nr++] = optarg;
			continue;
		}
		r = take_option(line, c);
		if (r)
			return r;
	}
	/* Behind "--". */
	while (optind < argc)
		line->words[line->nr++] = argv[optind++];
	return CTL_OK;
}

static int run(struct line *line)
{
	const struct command *command;
	int words, r;

	if (line->version) {
		printf("tmemctl %s\n", PACKAGE_VERSION);
		return CTL_OK;
	}
	if (line->help && !line->nr) {
		help();
		return CTL_OK;
	}
	if (line->help && line->nr == 1 &&
	    (!strcmp(line->words[0], "disk") || !strcmp(line->words[0], "peer")))
		return help_group(line->words[0]);
	command = find_command(line->nr, line->words, &words);
	if (!command)
		return no_command(line->nr, line->words);
	if (line->help) {
		help_command(command);
		return CTL_OK;
	}
	line->ctl.argc = line->nr - words;
	line->ctl.argv = line->words + words;
	r = check_usage(command, &line->ctl);
	return r ? r : command->run(&line->ctl);
}

int main(int argc, char **argv)
{
	struct line line = {.ctl = {.socket = TMEM_CONTROL_SOCKET, .timeout = -1}};
	char **whole = calloc((size_t)argc + 1, sizeof(*whole));
	int r;

	if (!whole) {
		perror("tmemctl");
		return CTL_UNREACHED;
	}
	/* Parsing moves argv about. */
	memcpy(whole, argv, (size_t)argc * sizeof(*whole));
	line.ctl.whole = whole;
	r = parse(argc, argv, &line);
	if (!r)
		r = run(&line);
	free(whole);
	return r;
}
