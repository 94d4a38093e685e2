// SPDX-License-Identifier: GPL-2.0-or-later
#include "store/seal.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NONCE 12u

struct seal {
	pthread_mutex_t lock; /* the library's handle keeps the state of one message */
	gnutls_aead_cipher_hd_t cipher;
};

struct seal *seal_new(const uint8_t key[SEAL_KEY])
{
	gnutls_datum_t datum = {(uint8_t *)key, SEAL_KEY};
	struct seal *seal = calloc(1, sizeof(*seal));

	if (!seal)
		return NULL;
	if (gnutls_aead_cipher_init(&seal->cipher, GNUTLS_CIPHER_AES_256_GCM, &datum) < 0) {
		free(seal);
		return NULL;
	}
	pthread_mutex_init(&seal->lock, NULL);
	return seal;
}

void seal_free(struct seal *seal)
{
	if (!seal)
		return;
	gnutls_aead_cipher_deinit(seal->cipher);
	pthread_mutex_destroy(&seal->lock);
	free(seal);
}

static void make_nonce(uint8_t nonce[NONCE], uint64_t number)
{
	memset(nonce, 0, NONCE);
	memcpy(nonce, &number, sizeof(number));
}

bool seal_close(struct seal *seal, uint64_t number, const struct seal_of *of, uint8_t *bytes,
		uint8_t tag[SEAL_TAG])
{
	giovec_t about = {(void *)of, sizeof(*of)}, data = {bytes, of->len};
	uint8_t nonce[NONCE];
	size_t len = SEAL_TAG;
	int r;

	make_nonce(nonce, number);
	pthread_mutex_lock(&seal->lock);
	r = gnutls_aead_cipher_encryptv2(seal->cipher, nonce, NONCE, &about, 1, &data, 1, tag,
					 &len);
	pthread_mutex_unlock(&seal->lock);
	return r >= 0 && len == SEAL_TAG;
}

bool seal_open(struct seal *seal, uint64_t number, const struct seal_of *of, uint8_t *bytes,
	       const uint8_t tag[SEAL_TAG])
{
	giovec_t about = {(void *)of, sizeof(*of)}, data = {bytes, of->len};
	uint8_t nonce[NONCE], copy[SEAL_TAG];
	int r;

	make_nonce(nonce, number);
	memcpy(copy, tag, SEAL_TAG);
	pthread_mutex_lock(&seal->lock);
	r = gnutls_aead_cipher_decryptv2(seal->cipher, nonce, NONCE, &about, 1, &data, 1, copy,
					 SEAL_TAG);
	pthread_mutex_unlock(&seal->lock);
	return r >= 0;
}
