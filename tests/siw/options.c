/* verbs-peer's command line. */

#include <stdlib.h>
#include <string.h>

#include "peer.h"

static const char *const usage =
	"usage: verbs-peer active|passive ADDRESS PORT transfer|reject|refused|fault [KEY=VALUE...]\n"
	"SCENARIOS.md has the scenarios and their keys.\n";

static const char *const operation_names[OPERATIONS] = { "send", "send-se", "send-inv", "send-se-inv", "write", "read" };

static void wrong(const char *what, const char *value) __attribute__((noreturn));

static void wrong(const char *what, const char *value)
{
	fprintf(stderr, "verbs-peer: %s: %s\n%s", what, value, usage);
	exit(2);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 0);

	if (!*text || *end)
		wrong("not a number", text);
	return value;
}

/* choice: returns the index of the text among the words. */
static int choice(const char *text, const char *const words[], int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(text, words[i]))
			return i;
	wrong("not known", text);
}

static enum end end_named(const char *text)
{
	static const char *const ends[] = { "active", "passive", "both" };

	return choice(text, ends, 3);
}

static void parse_operations(struct options *options, char *list)
{
	for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
		if (options->op_count == MAX_OPS)
			wrong("too many operations, at", name);
		options->ops[options->op_count++] = choice(name, operation_names, OPERATIONS);
	}
}

static bool is_host_key(const char *key)
{
	return !strcmp(key, "crc") || !strcmp(key, "markers") || !strcmp(key, "p2p") || !strcmp(key, "rtr") ||
	       !strcmp(key, "mapper") || !strcmp(key, "large") || !strcmp(key, "source");
}

static void parse_key(struct options *options, const char *key, char *value)
{
	static const char *const private_words[] = { "fixed", "grow" }, *const how_words[] = { "graceful", "abort" };
	const struct {
		const char *name;
		uint32_t *to;
	} numbers[] = {
		{ "connections", &options->connections }, { "request", &options->request }, { "reply", &options->reply },
		{ "reads", &options->reads }, { "revision", &options->revision }, { "timeout", &options->timeout },
		{ "wait", &options->wait }, { "count", &options->count }, { "size", &options->size },
	};

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		if (!strcmp(key, numbers[i].name)) {
			*numbers[i].to = number(value);
			return;
		}
	}
	if (!strcmp(key, "seed"))
		options->seed = number(value);
	else if (!strcmp(key, "order"))
		options->rfc_order = !strcmp(value, "rfc");
	else if (!strcmp(key, "terminate"))
		options->terminate = number(value);
	else if (!strcmp(key, "private"))
		options->grow = choice(value, private_words, 2);
	else if (!strcmp(key, "how"))
		options->abort = choice(value, how_words, 2);
	else if (!strcmp(key, "ops"))
		parse_operations(options, value);
	else if (!strcmp(key, "by"))
		options->by = end_named(value);
	else if (!strcmp(key, "close"))
		options->close = end_named(value);
	else if (!strcmp(key, "kind"))
		options->kind = value;
	else if (!is_host_key(key))
		wrong("no such key", key);
}

struct options parse_options(int argc, char **argv)
{
	static const char *const ends[] = { "active", "passive" };
	static const char *const scenarios[] = { "transfer", "reject", "refused", "fault" };
	struct options options = { .seed = 1, .connections = 1, .reads = 4, .revision = 2, .timeout = 20, .wait = 3,
				   .count = 1, .by = ACTIVE, .close = ACTIVE, .kind = "", .terminate = -1 };

	if (argc < 5)
		wrong("too few arguments", argc > 1 ? argv[1] : "none");
	options.role = choice(argv[1], ends, 2);
	options.address = argv[2];
	options.port = argv[3];
	options.scenario = scenarios[choice(argv[4], scenarios, 4)];
	if (!strcmp(options.scenario, "fault"))
		options.size = 64;
	for (int i = 5; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			wrong("not KEY=VALUE", argv[i]);
		*value = 0;
		parse_key(&options, argv[i], value + 1);
	}
	if (options.request > MAX_PRIVATE - 1 || options.reply > MAX_PRIVATE - 1)
		wrong("private data", "librdmacm takes at most 255 octets");
	return options;
}
