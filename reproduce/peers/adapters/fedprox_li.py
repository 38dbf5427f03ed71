"""litian96/FedProx: `PerturbedGradientDescent` (flearn/optimizer/pgd.py), in a graph of TensorFlow 1."""

import os

import numpy as np

os.environ |= {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_USE_LEGACY_KERAS": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
}

import tensorflow.compat.v1 as tf
from flearn.optimizer.pgd import PerturbedGradientDescent

from fedref import Batch
from fedref.judge.case import build_model

tf.disable_v2_behavior()
tf.disable_resource_variables()


def client(algorithm, model, hyper, server, data, rows):
    """Return w after SGD with fedref's gradients; hyper may ask for IndexedSlices."""
    w, grad = server["w"], build_model(model).grad
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.Variable(w[:, None], dtype=tf.float64)
        given = tf.placeholder(tf.float64, (w.size, 1))
        slices = tf.IndexedSlices(given, tf.range(w.size), tf.constant((w.size, 1)))
        optimiser = PerturbedGradientDescent(hyper["lr"], hyper["mu"])
        sparse = hyper.get("sparse", False)
        step = optimiser.apply_gradients([(slices if sparse else given, variable)])
        session.run(tf.global_variables_initializer())
        optimiser.get_slot(variable, "vstar").load(w[:, None], session)
        for D in rows["D"]:
            w = session.run(variable)[:, 0]
            batch = Batch(data["X"][D], data["y"][D])
            session.run(step, {given: grad(w, batch)[:, None]})
        return {"upload": {"w": np.asarray(session.run(variable)[:, 0])}}
